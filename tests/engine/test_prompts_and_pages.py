"""The smallest chunks and the context's end; each needs an engine of its own. More in test_catch_up.py."""

from engine import lab as labs
from engine import tiny
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references


def test_prompts_in_chunks_of_one_token_give_the_plain_text_and_the_references_drafts(
    prompts, truth, reference, tmp_path
):
    with labs.whiflash(tmp_path, chunked_prefill_size=1) as lab:
        lab.steer("ED", truth, 0.3)
        batch = [prompts[i] for i in (3, 4, 8, 9)]
        assert_plain_text(lab.generate(batch, max_new_tokens=24), batch, truth)
        assert_drafts_are_the_references(lab.rounds(), reference, sample=40)


def test_the_published_tree_runs_into_the_contexts_end(prompts, truth, tmp_path):
    tree = {
        "speculative_num_steps": 8,
        "speculative_eagle_topk": 10,
        "speculative_num_draft_tokens": 60,
    }
    context = 128
    with labs.whiflash(tmp_path, context_length=context, **tree) as lab:
        for pattern in ("E", "D", "ED"):
            lab.steer(pattern, truth, 0.2)
            for batch in ([prompts[3]], [prompts[i] for i in (0, 1, 3, 10)]):
                results = lab.generate(batch, max_new_tokens=None)
                assert_plain_text(results, batch, truth)
                for prompt, result in zip(batch, results, strict=True):
                    assert result["meta_info"]["finish_reason"]["type"] == "length"
                    assert context - 4 <= len(prompt) + len(result["output_ids"]) <= context


def test_drafts_trained_on_fewer_positions_run_on_past_them(prompts, truth, tmp_path):
    short = {"max_position_embeddings": 64}
    eagle3 = tiny.edited(tiny.eagle3(), tmp_path / "eagle3", short)
    dflash = tiny.edited(tiny.dflash(), tmp_path / "dflash", short)
    (tmp_path / "lab").mkdir()
    with labs.whiflash(
        tmp_path / "lab", speculative_draft_model_path=dflash, whiflash={"eagle_draft": eagle3}
    ) as lab:
        lab.steer("ED", truth, 0.3)
        assert_plain_text(lab.generate([prompts[8]], max_new_tokens=60), [prompts[8]], truth)

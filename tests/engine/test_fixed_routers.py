"""The baseline arms: one drafter always, the other kept out of the run; and SGLang's own EAGLE3."""

import pytest

from engine import lab as labs
from engine import tiny
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references


@pytest.mark.parametrize("drafter", ["eagle3", "dflash"])
def test_a_fixed_router_gives_the_plain_text_alone_and_in_batches(
    prompts, truth, reference, tmp_path, drafter
):
    with labs.whiflash(tmp_path, drafter) as lab:
        lab.steer("", truth, 0.3)
        assert_plain_text(lab.generate([prompts[4]], max_new_tokens=32), [prompts[4]], truth)
        lengths = [32, 7, 19, 3, 26, 12]  # the batch shrinks from its middle
        params = [labs.GREEDY | {"max_new_tokens": n} for n in lengths]
        results = lab.engine.generate(input_ids=prompts[:6], sampling_params=params)
        assert_plain_text(results, prompts[:6], truth)
        assert [len(r["output_ids"]) for r in results] == lengths
        rounds = lab.rounds()
        assert {entry["drafter"] for entry in rounds} == {drafter}
        assert_drafts_are_the_references(rounds, reference, sample=40)


def test_sglangs_own_eagle3_runs_on_the_cpu_and_gives_the_plain_text(prompts, truth):
    draft = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": str(tiny.eagle3())}
    with labs.plain(**draft, **labs.TREE) as lab:
        results = lab.generate(prompts[:4], max_new_tokens=24)
        assert_plain_text(results, prompts[:4], truth)
        assert all(result["meta_info"]["spec_verify_ct"] > 0 for result in results)

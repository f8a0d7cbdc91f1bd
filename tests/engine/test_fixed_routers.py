"""The baseline arms: one drafter always, the other kept out of the run; and SGLang's own EAGLE3."""

import pytest

from engine import lab as labs
from engine import tiny
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references


def second_turns_cached_tokens(lab, prompts):
    """Prompt tokens that the second turn of some conversations finds in the prefix cache."""
    cached = []
    for prompt in (prompts[3], prompts[4], prompts[8]):
        first = lab.ids([prompt], max_new_tokens=30)[0]
        second = lab.generate([prompt + first + [77, 78, 79]], max_new_tokens=4)[0]
        cached.append(second["meta_info"]["cached_tokens"])
    return cached


@pytest.fixture(scope="module")
def sglangs_eagle3(prompts):
    """(results of some prompts, cached tokens of second turns) of SGLang's own EAGLE3."""
    draft = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": str(tiny.eagle3())}
    with labs.plain(**draft, **labs.TREE) as lab:
        return lab.generate(prompts[:4], max_new_tokens=24), second_turns_cached_tokens(lab, prompts)


def test_sglangs_own_eagle3_runs_on_the_cpu_and_gives_the_plain_text(prompts, truth, sglangs_eagle3):
    results, _ = sglangs_eagle3
    assert_plain_text(results, prompts[:4], truth)
    assert all(result["meta_info"]["spec_verify_ct"] > 0 for result in results)


@pytest.fixture(scope="module", params=["eagle3", "dflash"])
def fixed(request, truth, sglangs_eagle3, tmp_path_factory):
    """(drafter, lab) of a router that always takes it."""
    with labs.whiflash(tmp_path_factory.mktemp("lab"), request.param) as lab:
        yield request.param, lab


def test_a_fixed_router_gives_the_plain_text_alone_and_in_batches(prompts, truth, reference, fixed):
    drafter, lab = fixed
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


def test_a_second_turn_finds_as_much_in_the_cache_as_under_sglangs_eagle3(prompts, fixed, sglangs_eagle3):
    _, lab = fixed
    lab.engine.flush_cache()
    lab.steer("")
    _, cached = sglangs_eagle3
    assert cached[2] > len(prompts[8])
    assert second_turns_cached_tokens(lab, prompts) == cached

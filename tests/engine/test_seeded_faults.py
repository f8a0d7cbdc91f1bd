"""The suite's checks fail under each fault they are meant to catch, and pass without one."""

import pytest

from engine import lab as labs
from engine.faults import FAULTS
from engine.reference import (
    assert_drafts_are_the_references,
    assert_scores_are_the_references,
)

THRESHOLD = 4.0
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def lab(truth, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    options = {"entropy_threshold": THRESHOLD}
    with labs.whiflash(folder, "entropy", faulty=True, whiflash=options) as lab:
        yield lab


def check_everything(lab, prompts, truth, reference, fault):
    """What the identity, draft and routing tests check, on a run whose batch shrinks, and a second turn."""
    lab.engine.flush_cache()
    lab.steer("EDDE", truth, 0.25, fault=fault)
    lab.rounds()
    lengths = [24, 5, 17, 9, 21]
    params = [labs.GREEDY | {"max_new_tokens": n} for n in lengths]
    results = lab.engine.generate(input_ids=prompts[:5], sampling_params=params)
    rounds = lab.rounds()
    for prompt, result, length in zip(prompts[:5], results, lengths, strict=True):
        assert result["output_ids"] == truth[tuple(prompt)][:length]
    follow_ups = [r["output_ids"] + [77, 78, 79] for r in results]
    lab.ids([p + f for p, f in zip(prompts[:5], follow_ups, strict=True)], max_new_tokens=4)
    rounds += lab.rounds()
    assert_drafts_are_the_references(rounds, reference, sample=200)
    assert_scores_are_the_references(rounds, reference, THRESHOLD)


def test_the_checks_pass_without_a_fault(lab, prompts, truth, reference):
    check_everything(lab, prompts, truth, reference, None)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_checks_fail_under_a_fault(lab, prompts, truth, reference, fault):
    with pytest.raises(AssertionError):
        check_everything(lab, prompts, truth, reference, fault)


def test_the_checks_pass_again_after_all_faults(lab, prompts, truth, reference):
    check_everything(lab, prompts, truth, reference, None)

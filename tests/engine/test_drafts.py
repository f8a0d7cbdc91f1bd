"""What each drafter proposes equals a from-scratch reference, after any history of rounds and batch mates."""

import pytest

from engine import lab as labs
from engine.reference import assert_drafts_are_the_references

NEW_TOKENS = 24


@pytest.fixture(scope="module")
def lab(truth, tmp_path_factory):
    with labs.whiflash(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.mark.parametrize("pattern", ["E", "D", "ED", "DDDDE", "EEEED", "EPDP"])
@pytest.mark.parametrize("corruption", [0.1, 0.5])
def test_drafts_equal_the_reference_after_any_switch_pattern(
    lab, prompts, truth, reference, pattern, corruption
):
    lab.steer(pattern, truth, corruption)
    lab.rounds()
    lab.ids(prompts[:8], max_new_tokens=NEW_TOKENS)
    assert_drafts_are_the_references(lab.rounds(), reference)


def test_drafts_equal_the_reference_when_requests_join_and_leave_mid_batch(lab, prompts, truth, reference):
    lab.steer("EDD", truth, 0.3)
    lab.rounds()
    lengths = [3, 24, 7, 15, 1, 20, 2, 11]
    params = [labs.GREEDY | {"max_new_tokens": n} for n in lengths]
    results = lab.engine.generate(input_ids=prompts[:8], sampling_params=params)
    for prompt, result, length in zip(prompts[:8], results, lengths, strict=True):
        assert result["output_ids"] == truth[tuple(prompt)][:length]
    rounds = lab.rounds()
    assert {entry["batch"] for entry in rounds} >= {1, 2, 3}, "the batch did not shrink"
    assert_drafts_are_the_references(rounds, reference)


def test_drafts_equal_the_reference_when_a_prompt_was_found_in_the_cache(lab, prompts, truth, reference):
    lab.engine.flush_cache()
    lab.steer("DE", truth, 0.3)
    first = lab.generate([prompts[3]], max_new_tokens=20)[0]
    follow_up = prompts[3] + first["output_ids"] + [77, 78, 79]
    lab.rounds()
    second = lab.generate([follow_up], max_new_tokens=12)[0]
    assert second["meta_info"]["cached_tokens"] > len(prompts[3])
    assert_drafts_are_the_references(lab.rounds(), reference)

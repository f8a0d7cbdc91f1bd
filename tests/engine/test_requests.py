"""Stops, limits, penalties, bias, grammar and log-probs: every answer is plain decoding's.

The drafts are the true answer with few errors, so that what ends or constrains
an answer falls inside an accepted run, at every offset of it.
"""

import pytest

from engine import lab as labs
from engine.cases import CASES, ask


@pytest.fixture(scope="module")
def lab(plain_answers, tmp_path_factory):
    with labs.whiflash(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.mark.parametrize("pattern", ["D", "ED"])
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_plain_decodings(lab, case_prompts, plain_answers, name, pattern):
    number, _, arguments = CASES[name]
    params, plain = plain_answers[name]
    lab.engine.flush_cache()
    lab.steer(pattern, {tuple(case_prompts[number]): plain[0]["output_ids"] + [11, 12, 13] * 6}, 0.05)
    ours = ask(lab, case_prompts[number], params, arguments)
    for a, b in zip(ours, plain, strict=True):
        assert a["output_ids"] == b["output_ids"]
        assert a["text"] == b["text"]
        for key in ("finish_reason", "prompt_tokens", "completion_tokens"):
            assert a["meta_info"][key] == b["meta_info"][key], key
        _assert_logprobs(a["meta_info"], b["meta_info"])


def _assert_logprobs(ours: dict, plain: dict) -> None:
    keys = [key for key in plain if "logprobs" in key]
    assert keys == [key for key in ours if "logprobs" in key]
    for key in keys:
        assert _flat(ours[key]) == pytest.approx(_flat(plain[key]), abs=2e-4), key


def _flat(value) -> list[float]:
    """All numbers of a nested list; None (the first prompt token has no law) as -1."""
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in _flat(item)]
    return [-1.0 if value is None else float(value)]


def test_two_signs_of_a_penalty_give_different_texts(plain_answers):
    up, down = (plain_answers[f"frequency_penalty {sign}0.9"][1][0] for sign in ("", "-"))
    assert up["output_ids"] != down["output_ids"]


def test_eos_ends_answers_at_many_lengths_and_ignored_eos_goes_on(plain_answers):
    ended = {
        answers[0]["meta_info"]["completion_tokens"]
        for name, (_, answers) in plain_answers.items()
        if name.startswith("EOS") and answers[0]["meta_info"]["finish_reason"]["type"] == "stop"
    }
    assert len(ended) >= 3, ended
    passed = [
        answers[0]["output_ids"] for name, (_, answers) in plain_answers.items() if name.endswith("ignored")
    ]
    assert all(len(ids) == 40 for ids in passed)
    assert any(2 in ids[:-1] for ids in passed)

"""Stops, limits, penalties, bias, grammar and log-probs: every answer is plain decoding's.

The drafts are the true answer with few errors, so that what ends or constrains
an answer falls inside an accepted run, at every offset of it.
"""

import random

import pytest

from engine import lab as labs
from engine import tiny

LENGTH = 18


def _cases() -> dict[str, tuple[int, dict, dict]]:
    """Name -> (prompt number, sampling parameters, other arguments of generate)."""
    cases: dict[str, tuple[int, dict, dict]] = {"no constraint": (0, {}, {})}
    for n in (1, 2, 3, 4, 5, 8, 9):
        cases[f"max_new_tokens {n}"] = (1, {"max_new_tokens": n}, {})
    for offset in range(12):
        cases[f"stop token at {offset}"] = (0, {"stop_at": offset}, {})
        cases[f"stop string at {offset}"] = (2, {"stop_string_at": offset}, {})
    for flag, value in (
        ("frequency_penalty", 0.9),
        ("frequency_penalty", -0.9),
        ("presence_penalty", 0.7),
        ("presence_penalty", -0.7),
        ("repetition_penalty", 1.4),
        ("repetition_penalty", 0.7),
    ):
        cases[f"{flag} {value}"] = (3, {flag: value}, {})
    cases["min_new_tokens past a stop token"] = (0, {"stop_at": 3, "min_new_tokens": 9}, {})
    cases["logit bias up"] = (1, {"logit_bias": {"777": 4.5}}, {})
    cases["logit bias down"] = (1, {"bias_away": 5}, {})
    cases["regex"] = (2, {"regex": "(red|green|blue){1,3}(one|two) three"}, {})
    cases["json schema"] = (
        3,
        {"json_schema": '{"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":["x","yy"]}},'
                        '"required":["a","b"],"additionalProperties":false}', "max_new_tokens": 60},
        {},
    )
    logprobs = {"return_logprob": True, "top_logprobs_num": 3, "logprob_start_len": -1}
    cases["log-probs"] = (2, {}, logprobs)
    cases["log-probs with a stop inside the block"] = (2, {"stop_at": 6}, logprobs)
    cases["log-probs of the prompt"] = (2, {}, logprobs | {"logprob_start_len": 0})
    cases["token_ids_logprob"] = (2, {}, logprobs | {"token_ids_logprob": [5, 6]})
    cases["n = 2"] = (3, {"n": 2}, {})
    return cases


CASES = _cases()


@pytest.fixture(scope="module")
def prompts():
    coin = random.Random(3)
    return [[coin.randrange(100, 40000) for _ in range(n)] for n in (6, 11, 4, 17)]


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny.target())


@pytest.fixture(scope="module")
def expected(prompts, tokenizer):
    """Plain decoding's answer and the final sampling parameters of every case."""
    answers = {}
    with labs.plain() as lab:
        free = lab.ids(prompts, max_new_tokens=LENGTH)
        for name, (number, given, arguments) in CASES.items():
            params = _concrete(given, free[number], tokenizer)
            answers[name] = params, _ask(lab, prompts[number], params, arguments)
    return answers


def _concrete(given: dict, free: list[int], tokenizer) -> dict:
    """Parameters chosen from the free answer: which token to stop at, which to bias away."""
    params = {"max_new_tokens": LENGTH} | given
    if "stop_at" in params:
        params["stop_token_ids"] = [free[params.pop("stop_at")]]
    if "stop_string_at" in params:
        params["stop"] = [tokenizer.decode([free[params.pop("stop_string_at")]])]
    if "bias_away" in params:
        params["logit_bias"] = {str(free[params.pop("bias_away")]): -30.0}
    return params


def _ask(lab, prompt, params, arguments):
    results = lab.engine.generate(
        input_ids=[prompt], sampling_params=labs.GREEDY | params, **arguments
    )
    return results if isinstance(results, list) else [results]


@pytest.fixture(scope="module")
def lab(expected, tmp_path_factory):
    with labs.whiflash(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.mark.parametrize("pattern", ["D", "ED"])
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_plain_decodings(lab, prompts, expected, name, pattern):
    number, _, arguments = CASES[name]
    params, plain = expected[name]
    lab.engine.flush_cache()
    lab.steer(pattern, {tuple(prompts[number]): plain[0]["output_ids"] + [11, 12, 13] * 6}, 0.05)
    ours = _ask(lab, prompts[number], params, arguments)
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


def test_two_signs_of_a_penalty_give_different_texts(expected):
    up, down = (expected[f"frequency_penalty {sign}0.9"][1][0] for sign in ("", "-"))
    assert up["output_ids"] != down["output_ids"]

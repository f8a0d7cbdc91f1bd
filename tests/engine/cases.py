"""Requests whose answers are constrained, and plain decoding's answers to them."""

from __future__ import annotations

import json
from typing import Any

from engine import lab as labs

LENGTH = 18
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "yy"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
)


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
    for bias in (2.6, 3.0, 3.3, 3.6, 3.9, 4.2):  # the larger, the earlier EOS comes
        lifted = {"logit_bias": {"2": bias}, "max_new_tokens": 40}
        cases[f"EOS lifted by {bias}"] = (1, lifted | {"ignore_eos": False}, {})
        cases[f"EOS lifted by {bias} and ignored"] = (1, lifted | {"ignore_eos": True}, {})
    cases["logit bias up"] = (1, {"logit_bias": {"777": 4.5}}, {})
    cases["logit bias down"] = (1, {"bias_away": 5}, {})
    # A grammar ends with EOS. With ignore_eos, plain decoding samples on past the grammar's end.
    grammar_ends = {"ignore_eos": False}
    cases["regex"] = (2, grammar_ends | {"regex": "(red|green|blue){1,3}(one|two) three"}, {})
    cases["json schema"] = (3, grammar_ends | {"json_schema": SCHEMA, "max_new_tokens": 60}, {})
    logprobs = {"return_logprob": True, "top_logprobs_num": 3, "logprob_start_len": -1}
    cases["log-probs"] = (2, {}, logprobs)
    cases["log-probs with a stop inside the block"] = (2, {"stop_at": 6}, logprobs)
    cases["log-probs of the prompt"] = (2, {}, logprobs | {"logprob_start_len": 0})
    cases["token_ids_logprob"] = (2, {}, logprobs | {"token_ids_logprob": [5, 6]})
    cases["n = 2"] = (3, {"n": 2}, {})
    return cases


CASES = _cases()


def answers(lab: labs.Lab, prompts: list[list[int]], tokenizer: Any) -> dict[str, tuple[dict, list[dict]]]:
    """Case -> (final sampling parameters, the lab's results)."""
    free = lab.ids(prompts, max_new_tokens=LENGTH)
    found = {}
    for name, (number, given, arguments) in CASES.items():
        params = _concrete(given, free[number], tokenizer)
        found[name] = params, ask(lab, prompts[number], params, arguments)
    return found


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


def ask(lab, prompt, params, arguments):
    results = lab.engine.generate(input_ids=[prompt], sampling_params=labs.GREEDY | params, **arguments)
    return results if isinstance(results, list) else [results]

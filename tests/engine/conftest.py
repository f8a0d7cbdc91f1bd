"""Plain decoding's texts, from one engine for the whole session: only one engine runs at a time."""

import random
from types import SimpleNamespace

import pytest

from engine import cases, tiny
from engine import lab as labs
from engine.reference import Reference

NEW_TOKENS = 130
PROMPT_LENGTHS = (5, 12, 3, 31, 18, 7, 2, 9, 64, 1, 25, 14)


def _random_prompts(seed, lengths):
    coin = random.Random(seed)
    return [[coin.randrange(100, 40000) for _ in range(n)] for n in lengths]


@pytest.fixture(scope="session")
def prompts():
    return _random_prompts(7, PROMPT_LENGTHS)


@pytest.fixture(scope="session")
def case_prompts():
    return _random_prompts(3, (6, 11, 4, 17))


@pytest.fixture(scope="session")
def _plain(prompts, case_prompts):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny.target())
    with labs.plain() as lab:
        texts = lab.ids(prompts, max_new_tokens=NEW_TOKENS)
        constrained = cases.answers(lab, case_prompts, tokenizer)
    return SimpleNamespace(truth=dict(zip(map(tuple, prompts), texts, strict=True)), constrained=constrained)


@pytest.fixture(scope="session")
def truth(_plain):
    """Prompt tuple -> plain decoding's next 130 tokens (greedy, float32)."""
    return _plain.truth


@pytest.fixture(scope="session")
def plain_answers(_plain):
    """Case name -> (sampling parameters, plain decoding's results)."""
    return _plain.constrained


@pytest.fixture(scope="session")
def reference():
    return Reference()

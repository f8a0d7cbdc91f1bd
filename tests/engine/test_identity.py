"""Greedy decoding with WHIFLASH equals plain decoding, whatever is drafted and however rounds switch."""

import random

import pytest

from engine import lab as labs

NEW_TOKENS = 40


@pytest.fixture(scope="module")
def prompts():
    coin = random.Random(7)
    return [[coin.randrange(100, 40000) for _ in range(n)] for n in (5, 12, 3, 31, 18, 7)]


@pytest.fixture(scope="module")
def truth(prompts):
    with labs.plain() as lab:
        outputs = lab.ids(prompts, max_new_tokens=NEW_TOKENS + 16)
    return dict(zip(map(tuple, prompts), outputs, strict=True))


@pytest.fixture(scope="module", params=["tree", "chain"])
def lab(request, truth, tmp_path_factory):  # after the plain engine: one at a time
    shape = labs.TREE if request.param == "tree" else labs.CHAIN
    with labs.whiflash(tmp_path_factory.mktemp("lab"), **shape) as lab:
        yield lab


@pytest.mark.parametrize("pattern", ["E", "D", "ED", "EEDDD", "P", "EPD"])
@pytest.mark.parametrize("corruption", [0.0, 0.2, 0.6, 1.0])
def test_every_switch_pattern_and_accept_count_gives_the_plain_text(
    lab, prompts, truth, pattern, corruption
):
    lab.steer(pattern, truth, corruption, seed=hash((pattern, corruption)) % 1000)
    outputs = lab.ids(prompts, max_new_tokens=NEW_TOKENS)
    assert outputs == [truth[tuple(p)][:NEW_TOKENS] for p in prompts]

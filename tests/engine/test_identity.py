"""Greedy decoding with WHIFLASH equals plain decoding, whatever is drafted and however rounds switch."""

import pytest

from engine import lab as labs

NEW_TOKENS = 40


@pytest.fixture(scope="module", params=["tree", "chain"])
def lab(request, truth, tmp_path_factory):  # after the plain engine: one at a time
    shape = labs.TREE if request.param == "tree" else labs.CHAIN
    with labs.whiflash(tmp_path_factory.mktemp("lab"), **shape) as lab:
        yield lab


@pytest.mark.parametrize("pattern", ["E", "D", "ED", "EEDDD", "P", "EPD"])
@pytest.mark.parametrize("corruption", [0.0, 0.2, 0.6, 1.0])
def test_every_switch_pattern_and_accept_count_gives_the_plain_text(lab, prompts, truth, pattern, corruption):
    lab.steer(pattern, truth, corruption, seed=hash((pattern, corruption)) % 1000)
    outputs = lab.ids(prompts[:6], max_new_tokens=NEW_TOKENS)
    assert outputs == [truth[tuple(p)][:NEW_TOKENS] for p in prompts[:6]]

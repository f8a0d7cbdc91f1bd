"""The neural router scores each request from the target's final hidden state at its last accepted row."""

from statistics import median

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import lab as labs
from engine.lab import assert_plain_text
from whiflash_sglang.routing import DFLASH, EAGLE3

BATCH = 5
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def router_file(tmp_path_factory):
    torch.manual_seed(4)
    path = tmp_path_factory.mktemp("router") / "router.safetensors"
    shapes = {"a": (16, 64), "b": (16,), "c": (1, 16), "d": (1,)}
    save_file({name: torch.randn(shape) * 0.5 for name, shape in shapes.items()}, path)
    return path


def score(router, hidden):
    inner = torch.nn.functional.gelu(router["a"] @ hidden + router["b"])
    return float((router["c"] @ inner + router["d"]).item())


@pytest.fixture(scope="module")
def threshold(truth, prompts, reference, router_file):
    """The median score along the batch's texts: rounds fall on both sides of it."""
    router = load_file(router_file)
    texts = [[*prompt, *truth[tuple(prompt)][:NEW_TOKENS]] for prompt in prompts[:BATCH]]
    return median(
        score(router, reference.final_hidden(text[:-n])) for text in texts for n in range(1, NEW_TOKENS)
    )


@pytest.fixture(scope="module")
def lab(truth, router_file, threshold, tmp_path_factory):
    options = {"neural_router_path": str(router_file), "neural_router_threshold": threshold}
    with labs.whiflash(tmp_path_factory.mktemp("lab"), "neural", whiflash=options) as lab:
        yield lab


@pytest.fixture(scope="module")
def rounds(lab, prompts, truth):
    lab.engine.flush_cache()
    lab.steer("", truth, 0.3)  # no script: the router decides
    lab.rounds()
    batch = prompts[:BATCH]
    assert_plain_text(lab.generate(batch, max_new_tokens=NEW_TOKENS), batch, truth)
    return lab.rounds()


def test_scores_are_the_mlps_of_the_last_accepted_rows(rounds, reference, router_file, threshold):
    router = load_file(router_file)
    for entry in rounds:
        expected = score(router, reference.final_hidden(entry["context"][:-1])) - threshold
        assert entry["score"] == pytest.approx(expected, abs=2e-3), entry


def test_a_round_goes_to_eagle3_exactly_when_the_live_scores_sum_above_zero(rounds):
    picked, at = set(), 0
    while at < len(rounds):
        live = rounds[at : at + rounds[at]["batch"]]
        total = sum(entry["score"] for entry in live)
        if abs(total) > 1e-3:
            assert {entry["drafter"] for entry in live} == {EAGLE3 if total > 0 else DFLASH}
        picked.update(entry["drafter"] for entry in live)
        at += len(live)
    assert picked == {EAGLE3, DFLASH}, "the router never switched"

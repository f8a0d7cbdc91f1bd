"""The neural router scores each request from the target's final hidden state at its last accepted row."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import lab as labs
from engine.lab import assert_plain_text
from whiflash_sglang.routing import DFLASH, EAGLE3

THRESHOLD = 0.1


@pytest.fixture(scope="module")
def router_file(tmp_path_factory):
    torch.manual_seed(4)
    path = tmp_path_factory.mktemp("router") / "router.safetensors"
    shapes = {"a": (16, 64), "b": (16,), "c": (1, 16), "d": (1,)}
    save_file({name: torch.randn(shape) * 0.5 for name, shape in shapes.items()}, path)
    return path


@pytest.fixture(scope="module")
def lab(truth, router_file, tmp_path_factory):
    options = {"neural_router_path": str(router_file), "neural_router_threshold": THRESHOLD}
    with labs.whiflash(tmp_path_factory.mktemp("lab"), "neural", whiflash=options) as lab:
        yield lab


@pytest.fixture(scope="module")
def rounds(lab, prompts, truth):
    lab.engine.flush_cache()
    lab.steer("", truth, 0.3)  # no script: the router decides
    lab.rounds()
    batch = prompts[:5]
    assert_plain_text(lab.generate(batch, max_new_tokens=24), batch, truth)
    return lab.rounds()


def test_scores_are_the_mlps_of_the_last_accepted_rows(rounds, reference, router_file):
    w = load_file(router_file)
    for entry in rounds:
        hidden = reference.final_hidden(entry["context"][:-1])
        inner = torch.nn.functional.gelu(w["a"] @ hidden + w["b"])
        expected = float((w["c"] @ inner + w["d"]).item()) - THRESHOLD
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

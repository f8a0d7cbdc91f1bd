"""The demo's flags and the weights they name."""

import argparse

import pytest
import torch
from safetensors.torch import load_file

from whiflash_sglang.demo.settings import FOLDER, demo_settings
from whiflash_sglang.flags import add_flags
from whiflash_sglang.routing.checkpoint import load_router, threshold_of

HIDDEN = 576
SGLANGS = {
    "speculative-draft-model-path",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
}


PAIRS = {"df-e3": None, "ddt-e3": 32}


@pytest.mark.parametrize("pair", PAIRS)
def test_every_setting_is_a_flag(pair):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    ours = {option.removeprefix("--") for action in parser._actions for option in action.option_strings}
    assert set(demo_settings(pair)) <= ours | SGLANGS


def test_df_e3_is_the_pair_of_the_demo():
    assert demo_settings() == demo_settings("df-e3")


@pytest.mark.parametrize(("pair", "budget"), PAIRS.items())
def test_the_router_loads_with_a_threshold_of_its_own(pair, budget):
    path = demo_settings(pair)["whiflash-neural-router-path"]
    router = load_router(path, pair=pair, tree_budget=budget, hidden_size=HIDDEN)
    assert router.positive == "eagle3"
    assert "threshold" in router.config
    assert threshold_of(router, None) == router.config["threshold"]


def test_draft_ids_are_distinct_target_ids():
    weights = load_file(FOLDER / "eagle3" / "model.safetensors")
    ids = torch.arange(len(weights["d2t"])) + weights["d2t"]
    assert len(ids.unique()) == len(ids)
    assert weights["t2d"].nonzero().squeeze(-1).tolist() == sorted(ids.tolist())


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "router-df-e3", "router-ddt-e3-b32"])
def test_every_checkpoint_has_a_card_that_names_no_path(kind):
    card = (FOLDER / kind / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "/tmp" not in card
    assert "/root" not in card
    assert "/work" not in card


def test_all_weights_together_are_under_64_megabytes():
    assert sum(f.stat().st_size for f in FOLDER.rglob("*.safetensors")) < 64e6

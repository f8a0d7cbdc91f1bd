"""Flags, YAML and Python meet in one config; what cannot work is refused by flag and value."""

import argparse
from pathlib import Path

import pytest
import yaml

from whiflash_sglang.config import WhiflashConfig
from whiflash_sglang.flags import add_flags, given_options
from whiflash_sglang.hooks import attach_config
from whiflash_sglang.refusals import REFUSALS, refuse_arguments

GOOD = {"dflash_draft": "d", "eagle_draft": "e", "router": "alternate"}
CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def test_a_good_config_is_accepted_and_frozen():
    config = WhiflashConfig.from_mapping(GOOD)
    with pytest.raises(AttributeError):
        config.router = "dflash"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nonsense": 1}, ["nonsense", "router"]),
        ({"dflash_draft": None}, ["--speculative-draft-model-path"]),
        ({"eagle_draft": None}, ["--whiflash-eagle-draft", "'d'"]),
        ({"router": "coin"}, ["--whiflash-router", "'coin'", "neural"]),
        ({"drafters": "x"}, ["--whiflash-drafters", "'x'", "df-e3"]),
        ({"router": "neural"}, ["--whiflash-neural-router-path"]),
        ({"router": "entropy"}, ["--whiflash-entropy-threshold"]),
        ({"router": "entropy", "entropy_threshold": -1.0}, ["--whiflash-entropy-threshold", "-1.0"]),
        ({"drafters": "ddt-e3"}, ["--whiflash-drafters ddt-e3", "--ddtree-tree-budget", "None"]),
        ({"drafters": "ddt-e3", "ddtree_tree_budget": 513}, ["--ddtree-tree-budget", "513"]),
        ({"drafters": "ddt-e3", "ddtree_tree_budget": "most"}, ["--ddtree-tree-budget", "'most'", "'auto'"]),
        ({"calibration": "c.json"}, ["--whiflash-calibration", "'c.json'", "--ddtree-tree-budget"]),
        ({"router": "ddtree"}, ["--whiflash-router", "ddtree", "df-e3"]),
        ({"ddtree_tree_budget": 32}, ["--ddtree-tree-budget", "32", "df-e3"]),
    ],
)
def test_a_bad_config_is_refused_with_flag_and_value(change, said):
    with pytest.raises(ValueError) as refusal:
        WhiflashConfig.from_mapping(GOOD | change)
    assert all(text in str(refusal.value) for text in said), refusal.value


def parse(*argv):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return given_options(parser.parse_args(argv))


def test_flags_give_config_fields_with_their_types():
    given = parse("--whiflash-router", "entropy", "--whiflash-entropy-threshold", "1.5")
    assert given == {"router": "entropy", "entropy_threshold": 1.5}


@pytest.mark.parametrize(("text", "budget"), [("32", 32), ("auto", "auto")])
def test_a_tree_budget_is_a_number_or_auto(text, budget):
    assert parse("--ddtree-tree-budget", text) == {"ddtree_tree_budget": budget}


def test_no_flags_give_nothing():
    assert parse() == {}


def test_our_flags_without_our_algorithm_are_refused():
    parser = argparse.ArgumentParser()
    add_flags(parser)
    args = parser.parse_args(["--whiflash-router", "dflash"])
    args.speculative_algorithm = "EAGLE3"
    with pytest.raises(ValueError, match=r"--whiflash-router given.*EAGLE3"):
        attach_config(None, type(None), args)


class Arguments(argparse.Namespace):
    """SGLang's defaults, as far as they are refused."""

    def __init__(self, **changes):
        super().__init__(**{refusal.field: None for refusal in REFUSALS})
        self.pp_size = self.attn_dp_size = 1
        vars(self).update(changes)


def test_sglangs_defaults_are_not_refused():
    refuse_arguments(Arguments())


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.field)
def test_every_refused_argument_is_named_with_its_value_and_a_reason(refusal):
    value = (
        0.5 if "threshold" in refusal.field else next(v for v in (True, 2, "decode") if refusal.refused(v))
    )
    with pytest.raises(ValueError) as raised:
        refuse_arguments(Arguments(**{refusal.field: value}))
    message = str(raised.value)
    assert refusal.flag in message
    assert repr(value) in message
    assert refusal.reason in message


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_config_is_read_by_sglangs_own_parser(path, monkeypatch):
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args

    load_plugins()
    args = prepare_server_args(["--config", str(path), "--whiflash-neural-router-path", "router"])
    config = args._whiflash
    written = yaml.safe_load(path.read_text())
    assert config.eagle_draft == written["whiflash-eagle-draft"]
    assert config.dflash_draft == written["speculative-draft-model-path"]
    assert args.speculative_num_draft_tokens == written["speculative-num-draft-tokens"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_config_is_read_by_the_benchmark_too(path):
    from whiflash_sglang.bench.cli import build_arms, parse

    written = yaml.safe_load(path.read_text())
    args = parse(["--config", str(path), "--whiflash-neural-router-path", "router", "--check-lossless"])
    plain, arm = build_arms(args)
    assert plain.engine_arguments["model_path"] == written["model-path"]
    assert arm.name == "whiflash:neural"
    assert arm.whiflash["eagle_draft"] == written["whiflash-eagle-draft"]
    assert arm.engine_arguments["speculative_num_draft_tokens"] == 60


def test_sglangs_help_lists_our_flags():
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import ServerArgs

    load_plugins()
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    assert "--whiflash-neural-router-threshold" in parser.format_help()


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    from whiflash_sglang.cpu import environment

    monkeypatch.setattr(environment, "_has_gpu", lambda: False)
    with pytest.raises(ValueError, match="--device is 'cuda'"):
        environment.prepare("cuda")

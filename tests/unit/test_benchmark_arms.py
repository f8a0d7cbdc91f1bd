"""--compare and the threshold list: which arms are started, under which names, and what is refused."""

import argparse
from multiprocessing import Pipe

import pytest

from whiflash_sglang.bench import run as benchmark_run
from whiflash_sglang.bench.arm_names import parse_arm_names
from whiflash_sglang.bench.arms import Arm
from whiflash_sglang.bench.build import threshold_or_list
from whiflash_sglang.bench.cli import build_arms, parse

BASE = ["--model-name-or-path", "org/target", "--device", "cpu"]
DRAFTS = ["--draft-name-or-path", "org/dflash", "--whiflash-eagle-draft", "org/eagle3"]


def arms(*flags):
    return build_arms(parse([*BASE, *DRAFTS, *flags]))


def names(*flags):
    return [arm.name for arm in arms(*flags)]


def test_arms_keep_their_order_and_their_report_names():
    written = "none, eagle3,whiflash:dflash,Random,sglang:eagle3"
    expected = ["plain", "whiflash:eagle3", "whiflash:dflash", "whiflash:random", "sglang:eagle3"]
    assert parse_arm_names(written) == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("plain,ddtree:many", "'ddtree:many', which is no arm"),
        ("whiflash:rate", "'whiflash:rate': not in this version"),
        ("sglang:dflash", "'sglang:dflash'.*needs a GPU"),
        ("plain,nonsense", "'nonsense', which is no arm; choose from plain, neural"),
        ("plain,,dflash", "''"),
        ("", "''"),
        ("dflash,whiflash:dflash", "names the arm whiflash:dflash twice"),
        ("plain,none", "names the arm plain twice"),
    ],
)
def test_arms_that_cannot_be_run_are_refused_by_name_when_flags_are_read(written, said):
    with pytest.raises(ValueError, match=said):
        parse([*BASE, "--compare", written])


def test_every_arm_has_its_router_and_the_shared_flags():
    plain, eagle3, entropy = arms(
        "--compare",
        "plain,eagle3,entropy",
        "--whiflash-entropy-threshold",
        "1.2",
        "--speculative-num-steps",
        "5",
    )
    assert plain.whiflash is None
    assert (eagle3.whiflash["router"], entropy.whiflash["router"]) == ("eagle3", "entropy")
    assert entropy.whiflash["entropy_threshold"] == 1.2
    assert {arm.engine_arguments["speculative_num_steps"] for arm in (eagle3, entropy)} == {5}
    assert "speculative_num_steps" not in plain.engine_arguments


def test_sglangs_own_eagle3_gets_the_eagle_draft_and_the_tree_of_whiflash():
    (arm,) = arms("--compare", "sglang:eagle3", "--speculative-eagle-topk", "4")
    arguments = arm.engine_arguments
    assert arguments["speculative_algorithm"] == "EAGLE3"
    assert arguments["speculative_draft_model_path"] == "org/eagle3"
    tree = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    assert [arguments[name] for name in tree] == [8, 4, 60]


def test_a_lossless_check_adds_plain_decoding_once():
    assert names("--compare", "dflash", "--check-lossless") == ["plain", "whiflash:dflash"]
    assert names("--compare", "dflash,plain", "--check-lossless") == ["whiflash:dflash", "plain"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--speculative-algorithm", "EAGLE3"], "--speculative-algorithm is EAGLE3, but --compare"),
        (["--speculative-algorithm", "WHIFLASH"], "--speculative-algorithm is WHIFLASH, but --compare"),
        (["--whiflash-router", "random"], "--whiflash-router is random, but --compare"),
        (["--whiflash-neural-router-threshold", "0,1"], r"threshold is a list, \(0.0, 1.0\)"),
    ],
)
def test_flags_that_contradict_the_arms_are_refused(flags, said):
    with pytest.raises(ValueError, match=said):
        arms("--compare", "plain,dflash", *flags)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("plain,neural", "whiflash:neural: .*--whiflash-neural-router-path is missing"),
        ("entropy", "whiflash:entropy: .*--whiflash-entropy-threshold"),
    ],
)
def test_an_arm_that_lacks_its_input_is_named(written, said):
    with pytest.raises(ValueError, match=said):
        arms("--compare", written)


def test_sglangs_own_eagle3_without_a_draft_is_named():
    with pytest.raises(ValueError, match="sglang:eagle3 but --whiflash-eagle-draft"):
        build_arms(parse([*BASE, "--compare", "sglang:eagle3"]))


def test_a_comparison_wins_over_the_single_arm_of_a_yaml_file(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("speculative-algorithm: WHIFLASH\nwhiflash-router: random\n")
    assert names("--config", str(path), "--compare", "plain,dflash") == ["plain", "whiflash:dflash"]


def test_a_list_of_thresholds_gives_one_neural_arm_each():
    flags = ["--whiflash-neural-router-path", "org/router", "--whiflash-neural-router-threshold", "0,0.5,1"]
    found = arms("--compare", "plain,neural,eagle3", *flags)
    swept = ["whiflash:neural@0", "whiflash:neural@0.5", "whiflash:neural@1"]
    assert [arm.name for arm in found] == ["plain", *swept, "whiflash:eagle3"]
    assert [arm.whiflash["neural_router_threshold"] for arm in found[1:4]] == [0, 0.5, 1]
    assert names(*flags) == swept


def test_one_threshold_leaves_the_arms_name_alone():
    flags = ["--whiflash-neural-router-path", "org/router", "--whiflash-neural-router-threshold", "0.5"]
    (arm,) = arms(*flags)
    assert (arm.name, arm.whiflash["neural_router_threshold"]) == ("whiflash:neural", 0.5)


@pytest.mark.parametrize("written", ["a", "0,", "0.5,0.50"])
def test_a_bad_list_of_thresholds_is_refused(written):
    with pytest.raises(argparse.ArgumentTypeError, match=written.replace(".", r"\.")):
        threshold_or_list(written)


@pytest.mark.parametrize(("device", "most"), [("cpu", 2), ("cuda", 5)])
def test_on_a_cpu_two_arms_start_at_a_time(monkeypatch, device, most):
    starting, seen = set(), []

    class FakeProcess:
        def __init__(self, arm, log):
            self.arm = arm
            self.ends = Pipe()
            self.ends[0].send("ready")
            starting.add(arm.name)
            seen.append(len(starting))

        def fileno(self):
            return self.ends[1].fileno()

        def wait_until_ready(self):
            starting.discard(self.arm.name)

        def close(self):
            pass

    monkeypatch.setattr(benchmark_run, "ArmProcess", FakeProcess)
    wanted = [Arm(str(i), {"device": device}) for i in range(5)]
    with benchmark_run.started(wanted, None) as processes:
        assert [process.arm.name for process in processes] == ["0", "1", "2", "3", "4"]
        assert not starting
    assert max(seen) == most


def test_an_arm_that_refuses_its_arguments_ends_the_start_while_others_still_load(monkeypatch):
    class FakeProcess:
        def __init__(self, arm, log):
            self.arm = arm
            self.ends = Pipe()
            if arm.name == "refuses":
                self.ends[0].send("refused")

        def fileno(self):
            return self.ends[1].fileno()

        def wait_until_ready(self):
            assert self.arm.name == "refuses", "waited for an arm that loads for ever"
            raise ValueError("--flag is bad")

        def close(self):
            pass

    monkeypatch.setattr(benchmark_run, "ArmProcess", FakeProcess)
    wanted = [Arm("loads for ever", {"device": "cpu"}), Arm("refuses", {"device": "cpu"})]
    with pytest.raises(ValueError, match="--flag is bad"), benchmark_run.started(wanted, None):
        pass

"""``--ddtree-tree-budget auto`` in a real engine: every width of the ladder has a verify of its own."""

import json

import pytest

from engine import lab as labs
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references
from whiflash_sglang.config import AUTO_LADDER
from whiflash_sglang.metrics import META_KEY, Round


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    return tmp_path_factory.mktemp("calibration") / "costs.json"


@pytest.fixture(scope="module")
def lab(calibration, tmp_path_factory):
    auto = {"drafters": "ddt-e3", "ddtree_tree_budget": "auto", "calibration": str(calibration)}
    with labs.whiflash(tmp_path_factory.mktemp("auto"), whiflash=auto) as lab:
        yield lab


@pytest.fixture(scope="module")
def first_run(lab, prompts, truth):
    """Results and log of the engine's first rounds, all of them trees, half of them accepted."""
    lab.rounds()
    lab.steer("D", truth, 0.5)
    batch = [prompts[i] for i in (0, 3)]
    results = lab.generate(batch, max_new_tokens=60)
    return batch, results, lab.rounds()


def test_every_width_is_tried_and_the_text_is_plain_decodings(first_run, truth):
    batch, results, log = first_run
    assert {len(entry["tokens"]) - 1 for entry in log} == set(AUTO_LADDER)
    assert_plain_text(results, batch, truth)


def test_the_mask_is_the_one_that_the_verify_of_that_width_reads(first_run):
    _, _, log = first_run
    assert all(entry["mask_is_the_verifys"] for entry in log)


def test_a_round_tells_how_many_tokens_its_tree_was_expected_to_yield(first_run):
    _, results, _ = first_run
    rounds = [Round(*r) for result in results for r in result["meta_info"][META_KEY]]
    assert rounds
    assert all(1 < r.expected <= r.drafted + 1 for r in rounds)


def test_what_rows_cost_is_kept_in_the_named_file(first_run, calibration):
    kept = json.loads(calibration.read_text())["rows_seconds_rounds"]
    assert len(kept) >= len(AUTO_LADDER)
    assert all(seconds > 0 for _, seconds, _ in kept)


def test_the_text_is_plain_decodings_when_budgets_and_drafters_both_change(lab, prompts, truth, reference):
    lab.rounds()
    lab.steer("EDD", truth, 0.4)
    batch = [prompts[i] for i in (1, 4, 9)]
    assert_plain_text(lab.generate(batch, max_new_tokens=40), batch, truth)
    assert_drafts_are_the_references(lab.rounds(), reference, sample=20)


def test_nothing_leaks(lab):
    assert lab.unaccounted_slots() == [0, 3]

"""The ddt-e3 pair in a real engine: DFlash's block drafted as a tree of a given number of nodes."""

import pytest

from engine import lab as labs
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references
from whiflash_sglang.metrics import META_KEY, Round

BUDGET = 12


@pytest.fixture(scope="module")
def lab(truth, tmp_path_factory):
    pair = {"drafters": "ddt-e3", "ddtree_tree_budget": BUDGET}
    with labs.whiflash(tmp_path_factory.mktemp("ddtree"), whiflash=pair) as lab:
        yield lab


@pytest.mark.parametrize("pattern", ["D", "ED", "EDD"])
@pytest.mark.parametrize("corruption", [0.0, 0.3, 1.0])
def test_whatever_is_accepted_of_a_tree_the_text_is_plain_decodings(lab, prompts, truth, pattern, corruption):
    lab.steer(pattern, truth, corruption)
    batch = [prompts[i] for i in (0, 1, 3, 8)]
    assert_plain_text(lab.generate(batch, max_new_tokens=40), batch, truth)


def test_trees_are_the_most_probable_prefixes_after_any_switch_pattern(lab, prompts, truth, reference):
    lab.rounds()
    lab.steer("DEDDE", truth, 0.4)
    batch = [prompts[i] for i in (2, 4, 9)]
    assert_plain_text(lab.generate(batch, max_new_tokens=30), batch, truth)
    assert_drafts_are_the_references(lab.rounds(), reference, sample=30)


def test_every_accept_count_up_to_the_depth_occurs(lab, prompts, truth):
    lab.rounds()
    lab.steer("D", truth, 0.15)
    results = lab.generate(prompts, max_new_tokens=60)
    rounds = [Round(*r) for result in results for r in result["meta_info"][META_KEY]]
    assert {r.drafted for r in rounds} == {BUDGET}
    depths = {max(entry["depths"]) for entry in lab.rounds()}
    assert {r.accepted for r in rounds} >= set(range(max(depths)))


def test_nothing_leaks(lab):
    assert lab.unaccounted_slots() == [0, 3]

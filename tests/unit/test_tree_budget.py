"""Which budget a round's tree gets."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whiflash_sglang.clock import PARTS
from whiflash_sglang.config import AUTO_LADDER
from whiflash_sglang.drafters.tree_budget import AdaptiveBudget, FixedBudget
from whiflash_sglang.pace import Pace

WIDEST = AUTO_LADDER[-1]


def times(seconds):
    """A round's seconds by part, all of them the verify's."""
    return [seconds if part == "verify" else 0.0 for part in PARTS]


def paced(per_row, tokens=3, requests=1):
    """A pace that has seen every width, of rounds that take 20 ms and so much per row."""
    pace = Pace("ddtree", None)
    for _ in range(3):
        for budget in AUTO_LADDER:
            rows = requests * (budget + 1)
            pace.observe("ddtree", rows, tokens * requests, times(0.02 + per_row * rows))
    return pace


def falling(first, factor, requests=1):
    """Log-probabilities [requests, WIDEST] of nodes: first, first * factor, ..."""
    return (math.log(first) + math.log(factor) * torch.arange(WIDEST)).repeat(requests, 1)


def test_a_fixed_budget_is_always_the_same():
    assert FixedBudget(24).choose(falling(0.9, 0.9)) == 24
    assert FixedBudget(24).ladder == (24,)


def test_free_rows_are_all_taken():
    assert AdaptiveBudget(AUTO_LADDER, paced(0.0)).choose(falling(0.5, 0.99)) == WIDEST


def test_dear_rows_are_not_taken():
    assert AdaptiveBudget(AUTO_LADDER, paced(0.1)).choose(falling(0.5, 0.5)) == AUTO_LADDER[0]


def test_a_draft_that_is_surer_further_down_gets_more_nodes():
    budget = AdaptiveBudget(AUTO_LADDER, paced(0.0005))
    chosen = [budget.choose(falling(0.5, factor)) for factor in (0.5, 0.9, 0.95, 0.99)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


@given(
    st.floats(0, 0.002),
    st.lists(st.floats(-12, 0), min_size=WIDEST, max_size=WIDEST),
)
def test_the_choice_is_the_best_of_the_ladder(per_row, log_probs):
    pace = paced(per_row)
    nodes = torch.tensor([sorted(log_probs, reverse=True)])
    rate = pace.tokens_per_second

    def worth(budget):
        expected = sum(math.exp(p) for p in nodes[0, :budget].tolist())
        return expected - rate * pace.costs.seconds(budget + 1)

    chosen = AdaptiveBudget(AUTO_LADDER, pace).choose(nodes)
    assert worth(chosen) == pytest.approx(max(worth(budget) for budget in AUTO_LADDER), abs=1e-4)


def test_every_width_is_tried_before_any_is_chosen():
    pace = Pace("ddtree", None)
    budget = AdaptiveBudget(AUTO_LADDER, pace)
    tried = []
    for _ in range(2 * len(AUTO_LADDER)):
        tried.append(budget.choose(falling(0.9, 0.9)))
        pace.observe("ddtree", tried[-1] + 1, 3, times(0.02))
    assert sorted(tried) == sorted(2 * AUTO_LADDER)


def test_a_batch_of_another_size_is_tried_as_well():
    pace = paced(0.1)
    budget = AdaptiveBudget(AUTO_LADDER, pace)
    tried = []
    for _ in range(2 * len(AUTO_LADDER)):
        tried.append(budget.choose(falling(0.5, 0.5, requests=16)))
        pace.observe("ddtree", 16 * (tried[-1] + 1), 3, times(0.02))
    assert sorted(tried) == sorted(2 * AUTO_LADDER)


def test_rounds_of_another_drafter_tell_what_a_second_is_worth_but_not_what_rows_cost():
    pace = paced(0.0005)
    before = pace.costs.seconds(33)
    for _ in range(200):
        pace.observe("eagle3", 12, 4, times(0.5))
    assert pace.tokens_per_second == pytest.approx(8, rel=0.05)
    assert pace.costs.seconds(33) == before


def test_a_calibration_outlives_the_run(tmp_path):
    file = tmp_path / "costs.json"
    first = Pace("ddtree", file)
    for budget in 2 * AUTO_LADDER:
        first.observe("ddtree", budget + 1, 3, times(0.02))
    second = Pace("ddtree", file)
    assert all(second.costs.known(budget + 1) for budget in AUTO_LADDER)


def test_a_calibration_that_cannot_be_written_stops_nothing(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    pace = Pace("ddtree", blocked / "costs.json")
    for _ in range(4):
        pace.observe("ddtree", 9, 3, times(0.02))
    assert pace.costs.known(9)

"""Simulated routing: thresholds and oracles against brute force, and the figures of simple rules."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash_sglang.router_training.quality import r_squared, ranks, spearman
from whiflash_sglang.router_training.records import Records, RoundTimes
from whiflash_sglang.router_training.simulate import (
    best_per_prompt,
    best_per_round,
    best_threshold,
    compare,
    compare_by_category,
    rate_choice,
    speed,
)

TIMES = st.builds(RoundTimes, st.floats(0.01, 1), st.floats(0.01, 1))
ROUNDS = st.lists(
    st.tuples(
        st.integers(1, 9),  # AL of EAGLE-3
        st.integers(1, 9),  # AL of DFlash
        st.one_of(st.integers(-3, 3), st.floats(-5, 5, width=32)),  # score; integers make ties
        st.integers(0, 2),  # prompt
    ),
    min_size=1,
    max_size=10,
)


def records(rows):
    pos, neg, _, prompt = (torch.tensor(column) for column in zip(*rows, strict=True))
    n, zeros = len(rows), torch.zeros(len(rows))
    return Records(
        hidden=torch.zeros(n, 1, dtype=torch.bfloat16),
        entropy=zeros,
        top1=zeros,
        recent_pos=zeros,
        recent_neg=zeros,
        al_pos=pos.float(),
        al_neg=neg.float(),
        prompt=prompt,
        position=torch.zeros(n, dtype=torch.int64),
        prompts=["a", "b", "c"],
        categories=["chat", "math", "math"],
    )


def scores(rows):
    return torch.tensor([float(row[2]) for row in rows])


def rate(rows, choice, times):
    tokens = sum(row[0] if positive else row[1] for row, positive in zip(rows, choice, strict=True))
    return tokens / sum(times.eagle3 if positive else times.dflash for positive in choice)


@settings(max_examples=150, deadline=None)
@given(ROUNDS, TIMES)
def test_the_best_threshold_yields_the_rate_of_the_best_of_all_thresholds(rows, times):
    score = scores(rows).tolist()
    thresholds = [min(score) - 1, *score]
    best = max(rate(rows, [s > t for s in score], times) for t in thresholds)
    assert best_threshold(scores(rows), records(rows), times)[1] == pytest.approx(best, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(ROUNDS, TIMES)
def test_the_rate_told_is_the_one_that_the_threshold_yields(rows, times):
    threshold, told = best_threshold(scores(rows), records(rows), times)
    assert rate(rows, [s > threshold for s in scores(rows).tolist()], times) == pytest.approx(told, rel=1e-9)


def test_the_threshold_is_the_middle_between_the_scores_it_parts():
    rows = [(9, 1, 4.0, 0), (9, 1, 3.0, 0), (1, 9, 1.0, 0), (1, 9, 0.0, 0)]
    assert best_threshold(scores(rows), records(rows), RoundTimes(1, 1))[0] == 2.0


def test_the_threshold_is_the_middle_of_a_plateau_of_equal_rates():
    rows = [(9, 1, 4.0, 0), (5, 5, 3.0, 0), (1, 9, 0.0, 0)]
    assert best_threshold(scores(rows), records(rows), RoundTimes(1, 1))[0] == 2.0


@pytest.mark.parametrize(("al", "always"), [((9, 1), True), ((1, 9), False)])
def test_where_one_drafter_always_wins_the_threshold_lies_beyond_all_scores(al, always):
    rows = [(*al, score, 0) for score in (0.0, 1.0, 2.0)]
    threshold, _ = best_threshold(scores(rows), records(rows), RoundTimes(1, 1))
    assert threshold == (-2.0 if always else 4.0)


def test_a_score_that_is_not_finite_is_refused():
    rows = [(2, 1, float("nan"), 0)]
    with pytest.raises(ValueError, match="not finite"):
        best_threshold(scores(rows), records(rows), RoundTimes(1, 1))


@settings(max_examples=40, deadline=None)
@given(ROUNDS, TIMES)
def test_the_best_choice_per_round_is_the_best_of_all_choices(rows, times):
    best = max(rate(rows, choice, times) for choice in product([True, False], repeat=len(rows)))
    found = speed(records(rows), times, best_per_round(records(rows), times))
    assert found.tokens_per_s == pytest.approx(best, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(ROUNDS, TIMES)
def test_no_rule_is_faster_than_the_best_choice_per_round(rows, times):
    some = records(rows)
    routed = {
        "threshold": scores(rows) > best_threshold(scores(rows), some, times)[0],
        "rate": rate_choice(torch.stack([some.al_pos, some.al_neg], 1), times),
    }
    for rules in compare_by_category(some, times, routed).values():
        *others, bound = rules.values()
        assert max(other.tokens_per_s for other in others) <= bound.tokens_per_s * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(ROUNDS, TIMES)
def test_random_routing_yields_the_mean_tokens_over_the_mean_seconds(rows, times):
    found = compare(records(rows), times, {})["random"]
    mean = sum(row[0] + row[1] for row in rows) / 2 / len(rows)
    assert found.tokens_per_round == pytest.approx(mean)
    assert found.tokens_per_s == pytest.approx(mean / ((times.eagle3 + times.dflash) / 2))


def test_each_drafter_alone_yields_its_mean_length_over_its_round_time():
    rules = compare(records([(4, 2, 0, 0), (6, 3, 0, 0)]), RoundTimes(0.5, 0.25, plain=0.2), {}, "ddtree")
    assert rules["eagle3 alone"].tokens_per_s == 10
    assert rules["ddtree alone"].tokens_per_s == 10
    assert rules["plain decoding"].tokens_per_s == 5


def test_the_best_drafter_per_prompt_goes_by_the_whole_prompt():
    rows = [(9, 1, 0, 0), (1, 2, 0, 0), (3, 2, 0, 1), (1, 9, 0, 1)]
    assert best_per_prompt(records(rows), RoundTimes(1, 1)).tolist() == [True, True, False, False]


def test_the_rate_router_weighs_length_by_round_time():
    predicted = torch.tensor([[4.0, 3.0], [7.0, 3.0]])
    assert rate_choice(predicted, RoundTimes(0.2, 0.1)).tolist() == [False, True]


def test_no_records_are_refused():
    with pytest.raises(ValueError, match="no records"):
        speed(records([(1, 1, 0, 0)]).select(torch.tensor([False])), RoundTimes(1, 1), torch.tensor([]))


def test_equal_values_share_their_mean_rank():
    assert ranks(torch.tensor([5.0, 1.0, 5.0, 9.0])).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_rank_correlation_sees_order_only():
    x = torch.tensor([0.0, 1.0, 2.0, 5.0])
    assert spearman(x, x.exp()) == pytest.approx(1)
    assert spearman(x, -x.exp()) == pytest.approx(-1)


def test_a_fit_to_what_does_not_vary_has_no_figure():
    constant, x = torch.ones(3), torch.arange(3.0)
    assert r_squared(x, constant) is None
    assert spearman(x, constant) is None


def test_predicting_the_mean_explains_nothing_and_the_truth_everything():
    x = torch.tensor([1.0, 2.0, 6.0])
    assert r_squared(x, x) == 1
    assert r_squared(torch.full((3,), 3.0), x) == 0

"""Where a round's time goes, and what switching adds, by one definition."""

import pytest

from unit.rounds import a_round
from whiflash_sglang.round_costs import RoundCosts


def test_shares_sum_to_one_and_count_idle_catch_up_as_catch_up():
    costs = RoundCosts.of_request([a_round("eagle3", verify=6.0, catch_up=1.0, idle_catch_up=1.0, other=2.0)])
    shares = costs.time_share()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["catch_up"] == pytest.approx(0.2)
    assert set(shares) == {"routing", "catch_up", "draft", "verify", "commit", "other"}


def test_a_run_that_never_switches_has_no_switching_overhead():
    costs = RoundCosts.of_request([a_round("eagle3", catch_up=1.0, verify=9.0)] * 5)
    assert costs.switching_share() == 0


def test_switching_is_what_catch_up_takes_above_the_drafters_other_rounds():
    usual = [a_round("eagle3", catch_up=1.0, verify=9.0)] * 3
    there = [a_round("dflash", catch_up=5.0, verify=5.0), a_round("dflash", catch_up=2.0, verify=8.0)]
    back = [a_round("eagle3", catch_up=2.5, verify=7.5)]
    costs = RoundCosts.of_request(usual + there + back)
    assert costs.switching_seconds() == pytest.approx((5.0 - 2.0) + (2.5 - 1.0))
    assert costs.switching_share() == pytest.approx(4.5 / 60)


def test_rows_written_for_an_idle_drafter_are_switching():
    costs = RoundCosts.of_request([a_round("eagle3", released=4, idle_catch_up=0.5, verify=9.5)])
    assert costs.switching_share() == pytest.approx(0.05)
    assert costs.released_rows == 4


def test_a_drafter_that_never_stays_pays_with_all_its_catch_up():
    costs = RoundCosts.of_request([a_round("eagle3", catch_up=1.0), a_round("dflash", catch_up=2.0)])
    assert costs.switching_seconds() == pytest.approx(2.0)


def test_requests_add_up():
    total = RoundCosts()
    for _ in range(3):
        total += RoundCosts.of_request([a_round("eagle3", caught_up=2, verify=1.0)])
    assert total.rows == 6
    assert total.total == pytest.approx(3.0)


def test_without_rounds_there_are_no_shares():
    assert RoundCosts().time_share() is None
    assert RoundCosts().switching_share() is None

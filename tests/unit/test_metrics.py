"""One definition of acceptance length."""

import pytest

from unit.rounds import a_round
from whiflash_sglang.metrics import Acceptance

ROUNDS = [
    a_round("eagle3", 2),
    a_round("dflash", 0),
    a_round("dflash", 4),
]  # emits 3 + 1 + 5 tokens after the prompt's


def test_acceptance_length_is_one_plus_accepted_drafts_per_round():
    counts = Acceptance.of_request(ROUNDS, completion_tokens=10)
    assert counts.length() == pytest.approx(1 + 6 / 3)
    assert counts.length("dflash") == pytest.approx(1 + 4 / 2)
    assert counts.share() == {"dflash": 2 / 3, "eagle3": 1 / 3}
    assert counts.switches == 1


@pytest.mark.parametrize(
    ("tokens", "accepted", "rounds"), [(10, 6, 3), (9, 6, 3), (7, 4, 3), (5, 2, 2), (2, 1, 1)]
)
def test_tokens_after_a_stop_do_not_count(tokens, accepted, rounds):
    counts = Acceptance.of_request(ROUNDS, completion_tokens=tokens)
    assert counts.accepted.total() == accepted
    assert counts.rounds.total() == rounds


def test_without_rounds_there_is_no_acceptance_length():
    assert Acceptance.of_request([], completion_tokens=1).length() is None


def test_sums_keep_drafters_that_accepted_nothing():
    total = Acceptance()
    total += Acceptance.of_request([a_round("eagle3", 0)], 2)
    total += Acceptance.of_request([a_round("dflash", 3)], 5)
    assert dict(total.accepted) == {"eagle3": 0, "dflash": 3}
    assert total.length("eagle3") == 1.0


def test_depths_count_the_rounds_that_went_at_least_so_deep():
    counts = Acceptance.of_request([a_round("dflash", n) for n in (0, 0, 1, 3)], completion_tokens=20)
    assert counts.by_depth("dflash") == [2 / 4, 1 / 4, 1 / 4]


def test_depths_of_rounds_that_accepted_nothing_are_none():
    assert Acceptance.of_request([a_round("dflash", 0)], completion_tokens=20).by_depth("dflash") == []


def test_the_expected_length_is_the_mean_of_what_rounds_promised():
    rounds = [a_round("ddtree", 1, expected=2.0), a_round("ddtree", 1, expected=3.0), a_round("eagle3", 1)]
    counts = Acceptance()
    for part in (rounds[:1], rounds[1:]):
        counts += Acceptance.of_request(part, completion_tokens=20)
    assert counts.expected_length("ddtree") == 2.5
    assert counts.expected_length("eagle3") is None


def test_trees_are_counted_by_their_nodes():
    rounds = [a_round("ddtree", drafted=8), a_round("ddtree", drafted=8), a_round("ddtree", drafted=16)]
    assert Acceptance.of_request(rounds, completion_tokens=20).trees == {("ddtree", 8): 2, ("ddtree", 16): 1}

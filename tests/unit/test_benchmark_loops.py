"""Where an answer starts to loop, and the acceptance length before that."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.rounds import a_round
from whiflash_sglang.bench.answers import Answer
from whiflash_sglang.bench.loops import loop_start
from whiflash_sglang.bench.summary import mean_of_categories, summarize

PHRASE = [11, 12, 13, 14, 15, 16, 17, 18]


@pytest.mark.parametrize(
    ("ids", "start"),
    [
        ([], None),
        (list(range(100)), None),
        (PHRASE * 2, None),
        (PHRASE * 3, 16),
        ([1, *PHRASE, 2, 3, *PHRASE, 4, *PHRASE, 5], 20),
        (PHRASE * 2 + PHRASE[:7], None),
        ([7] * 23, None),
        ([7] * 24, 16),
        ([1, 2, 3] * 9, 18),
    ],
)
def test_a_loop_starts_at_the_third_occurrence_of_eight_tokens(ids, start):
    assert loop_start(ids) == start


@settings(max_examples=300)
@given(st.text("abc", max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_occurrences_are_counted_as_str_count_does(text, n, times):
    starts = range(len(text) - n + 1)
    expected = next((i for i in starts if text[: i + n].count(text[i : i + n]) >= times), None)
    assert loop_start([ord(letter) for letter in text], n, times) == expected


def answer(output_ids, rounds):
    found = Answer("a", "chat", [], output_ids=list(output_ids))
    found.count(rounds, len(output_ids))
    return found


def test_acceptance_before_a_loop_counts_the_rounds_up_to_it():
    rounds = [a_round("eagle3", 2)] * 5 + [a_round("eagle3", 7)] * 2  # 1 + 5 * 3 tokens, then 2 * 8
    looping = answer(PHRASE * 4, rounds)
    assert looping.loop_start == 16
    assert looping.acceptance_before_loop.length() == pytest.approx(3)
    assert looping.acceptance.length() == pytest.approx(1 + (10 + 7 + 7) / 7)


def test_a_round_that_reaches_into_the_loop_counts_up_to_it():
    looping = answer(
        [*PHRASE, 1, *PHRASE, 2, *PHRASE], [a_round("dflash", 7), a_round("dflash", 4), a_round("dflash", 7)]
    )
    assert looping.loop_start == 18
    assert looping.acceptance_before_loop.accepted.total() == 7 + 4 + 4


def test_an_answer_without_a_loop_has_one_acceptance_length():
    straight = answer(range(9), [a_round("dflash", 7)])
    assert straight.loop_start is None
    assert straight.acceptance_before_loop == straight.acceptance


def test_totals_and_the_mean_of_categories_have_both_acceptance_lengths():
    looping = answer(PHRASE * 4, [a_round("eagle3", 2)] * 5 + [a_round("eagle3", 7)] * 2)
    straight = answer(range(9), [a_round("dflash", 7)])
    rows = [summarize([looping], 2.0), summarize([straight], 1.0)]
    assert [row["looped"] for row in rows] == [1, 0]
    assert summarize([looping, straight], 3.0)["acceptance_length_before_loop"] == pytest.approx(1 + 17 / 6)
    mean = mean_of_categories(rows)
    assert mean["acceptance_length_before_loop"] == pytest.approx((3 + 8) / 2)
    assert mean["output_tokens_per_s"] == pytest.approx((16 + 9) / 2)

"""Bootstrap intervals of tokens per second."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash_sglang.bench.answers import ArmRun, Group
from whiflash_sglang.bench.statistics import against, against_better_drafter, all_ratios

GROUPS = st.lists(
    st.tuples(st.sampled_from(["chat", "math"]), st.integers(1, 500), st.floats(0.1, 9), st.floats(0.1, 9)),
    min_size=1,
    max_size=12,
)


def run(name, *groups):
    return ArmRun(name, groups=[Group(category, seconds, tokens) for category, seconds, tokens in groups])


def pair(rows):
    """An arm and its base that emit the same tokens, as greedy decoding does."""
    arm = run("whiflash:dflash", *((category, ours, tokens) for category, tokens, ours, _ in rows))
    return arm, run("plain", *((category, theirs, tokens) for category, tokens, _, theirs in rows))


@settings(max_examples=40, deadline=None)
@given(GROUPS)
def test_an_arm_against_itself_is_exactly_one(rows):
    arm, _ = pair(rows)
    for ratio in against(arm, arm):
        assert ratio.ratio == 1
        assert (ratio.low, ratio.high) == ((1, 1) if ratio.groups > 1 else (None, None))


@settings(max_examples=40, deadline=None)
@given(GROUPS)
def test_the_interval_holds_the_ratio_of_summed_tokens_and_seconds(rows):
    found = against(*pair(rows))
    expected = sum(theirs for *_, theirs in rows) / sum(ours for *_, ours, _ in rows)
    assert found[-1].category == "all"
    assert found[-1].ratio == pytest.approx(expected)
    for ratio in found:
        if ratio.groups > 1:
            assert ratio.low <= ratio.ratio * (1 + 1e-9)
            assert ratio.high >= ratio.ratio * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(GROUPS, st.floats(0.2, 5))
def test_an_arm_that_takes_c_times_as_long_has_a_cth_of_the_ratio(rows, c):
    arm, base = pair(rows)
    slower = ArmRun(arm.name, groups=[dataclasses.replace(g, seconds=c * g.seconds) for g in arm.groups])
    for before, after in zip(against(arm, base), against(slower, base), strict=True):
        assert after.ratio == pytest.approx(before.ratio / c)
        if before.groups > 1:
            assert (after.low, after.high) == pytest.approx((before.low / c, before.high / c))


ROWS = [("chat", 90, 1.0, 2.0), ("chat", 80, 2.0, 3.0), ("math", 50, 1.0, 3.0), ("math", 70, 2.0, 2.5)]


def test_the_seed_alone_decides_the_interval():
    arm, base = pair([("chat", 40 + i, 1 + i % 7 / 9, 2 + i % 5 / 11) for i in range(30)])
    assert against(arm, base, seed=3) == against(arm, base, seed=3)
    assert against(arm, base, seed=3) != against(arm, base, seed=4)


def test_more_prompts_give_a_narrower_interval():
    widths = [found[-1].high - found[-1].low for found in (against(*pair(ROWS * n)) for n in (1, 4, 16))]
    assert all(narrower < wider for wider, narrower in pairwise(widths))


def test_the_overall_interval_keeps_each_categorys_size():
    steady = [("chat", 10, 1.0, 1.0)] * 2 + [("math", 10, 1.0, 4.0)] * 2  # varies between categories only
    *_, overall = against(*pair(steady))
    assert (overall.low, overall.ratio, overall.high) == (2.5, 2.5, 2.5)


def test_one_prompt_per_category_has_an_interval_over_all_only():
    chat, math, overall = against(*pair([ROWS[0], ROWS[2]]))
    assert chat.low is math.low is None
    assert overall.low < overall.ratio < overall.high


def test_groups_with_a_failed_request_and_an_uneven_end_are_left_out():
    arm, base = pair(ROWS)
    arm.groups[0] = dataclasses.replace(arm.groups[0], failed=True)
    base.groups.pop()
    assert [(r.category, r.groups) for r in against(arm, base)] == [("chat", 1), ("math", 1), ("all", 2)]
    assert against(arm, ArmRun("plain")) == []


def test_ratios_are_against_plain_and_against_each_drafter_alone():
    group = ("chat", 1.0, 10)
    runs = [run(name, group) for name in ("plain", "whiflash:eagle3", "whiflash:dflash", "whiflash:neural")]
    pairs = {(r.arm.removeprefix("whiflash:"), r.base.removeprefix("whiflash:")) for r in all_ratios(runs)}
    assert pairs == {
        ("eagle3", "plain"),
        ("dflash", "plain"),
        ("neural", "plain"),
        ("dflash", "eagle3"),
        ("neural", "eagle3"),
        ("eagle3", "dflash"),
        ("neural", "dflash"),
    }


def test_a_router_is_held_against_the_faster_drafter_of_each_category():
    eagle3 = run("whiflash:eagle3", ("chat", 1.0, 10), ("math", 4.0, 10))
    dflash = run("whiflash:dflash", ("chat", 2.0, 10), ("math", 2.0, 10))
    router = run("whiflash:neural", ("chat", 1.0, 10), ("math", 1.0, 10))
    own = run("sglang:eagle3", ("chat", 1.0, 10), ("math", 1.0, 10))
    found = against_better_drafter(all_ratios([eagle3, dflash, router, own]))
    assert [(r.arm, r.category, r.base, r.ratio) for r in found] == [
        ("whiflash:neural", "chat", "whiflash:eagle3", 1.0),
        ("whiflash:neural", "math", "whiflash:dflash", 2.0),
        ("whiflash:neural", "all", "whiflash:dflash", 2.0),
    ]
    assert against_better_drafter(all_ratios([eagle3, router])) == []

"""What a routing rule would have yielded on sampled rounds: tokens per round and per second.

    tokens/round = mean AL of the chosen drafters        tokens/s = sum AL / sum T

T is the chosen drafter's round time. This replays sampled rounds, it does not
decode: every sampled context counts once under every rule, and neither the
router's own time nor the cost of switching is in it.

Rate by rate, the best rule per round is a threshold on dAL: with lambda the
tokens per second that the whole run ends up with, EAGLE-3 pays where
AL_e - lambda T_e > AL_d - lambda T_d, that is dAL > lambda (T_e - T_d).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from whiflash_sglang.router_training.records import Records
from whiflash_sglang.router_training.round_times import RoundTimes

ALL = "all"
_SAME_RATE = 1e-12  # relative; below it two thresholds are equally good


@dataclass(frozen=True)
class Speed:
    """One rule's figures over some rounds. ``positive_share`` is EAGLE-3's share of them; None without drafts."""

    rounds: int
    tokens_per_round: float
    tokens_per_s: float
    positive_share: float | None

    def to_json(self) -> dict[str, Any]:
        """For a report."""
        return asdict(self)


def speed(records: Records, times: RoundTimes, positive: torch.Tensor) -> Speed:
    """The figures of a choice.

    Args:
        positive: bool [n], True for EAGLE-3; or float [n], its probability. A
            random choice gives the long-run rate: mean tokens over mean seconds.

    Raises:
        ValueError: no records.
    """
    n = len(records)
    if n == 0:
        raise ValueError("there are no records to simulate on")
    share = positive.double()
    tokens = float((share * records.al_pos + (1 - share) * records.al_neg).sum())
    chosen = float(share.sum())
    seconds = chosen * times.eagle3 + (n - chosen) * times.dflash
    return Speed(n, tokens / n, tokens / seconds, chosen / n)


def best_threshold(score: torch.Tensor, records: Records, times: RoundTimes) -> tuple[float, float]:
    """The threshold t for which "EAGLE-3 where score > t" yields the most tokens per second, and that rate.

    Always one drafter is among the candidates. Neighbouring thresholds of the
    best rate form a plateau, and t is the middle of the longest one; a plateau
    that reaches past all scores is taken to end twice their spread beyond them.

    Args:
        score: float [n].

    Raises:
        ValueError: no records, or a score that is not finite.
    """
    if not bool(score.isfinite().all()):
        raise ValueError("a score is not finite")
    rates, levels = _rate_by_candidate(score.double(), records, times)
    first, last = _longest_run(rates >= float(rates.max()) * (1 - _SAME_RATE))
    spread = max(float(levels[0] - levels[-1]), 1.0)
    ends = torch.cat([levels[:1] + 2 * spread, levels, levels[-1:] - 2 * spread])
    high, low = float(ends[first]), float(ends[last + 1])
    middle = low + (high - low) / 2
    threshold = middle if middle < high else low
    return threshold, speed(records, times, score.double() > threshold).tokens_per_s


def _rate_by_candidate(
    score: torch.Tensor, records: Records, times: RoundTimes
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens per second where the j highest distinct scores go to EAGLE-3, j = 0..m; and those scores.

    Returns:
        float64 [m + 1] and float64 [m], falling.
    """
    n = len(records)
    if n == 0:
        raise ValueError("there are no records to simulate on")
    ordered, order = score.sort(descending=True)
    levels, counts = ordered.unique_consecutive(return_counts=True)
    chosen = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    gained = torch.cat([torch.zeros(1, dtype=torch.float64), records.delta.double()[order].cumsum(0)])
    tokens = records.al_neg.double().sum() + gained[chosen]
    seconds = chosen * times.eagle3 + (n - chosen) * times.dflash
    return tokens / seconds, levels


def _longest_run(good: torch.Tensor) -> tuple[int, int]:
    """First and last index of the longest run of True in bool [n]; the first of equals."""
    values, lengths = good.unique_consecutive(return_counts=True)
    ends = lengths.cumsum(0)
    best = int((lengths * values).argmax())
    return int(ends[best] - lengths[best]), int(ends[best]) - 1


def rate_choice(predicted: torch.Tensor, times: RoundTimes) -> torch.Tensor:
    """bool [n]: EAGLE-3 where its predicted tokens per second are higher.

    Args:
        predicted: float [n, 2], the expected acceptance lengths of EAGLE-3 and of the other drafter.
    """
    return predicted[:, 0] / times.eagle3 > predicted[:, 1] / times.dflash


def best_per_prompt(records: Records, times: RoundTimes) -> torch.Tensor:
    """bool [n]: the drafter that yields the most tokens per second over the round's whole prompt."""
    sums = torch.zeros(2, len(records.prompts), dtype=torch.float64)
    sums[0].index_add_(0, records.prompt, records.al_pos.double())
    sums[1].index_add_(0, records.prompt, records.al_neg.double())
    return (sums[0] / times.eagle3 > sums[1] / times.dflash)[records.prompt]


def best_per_round(records: Records, times: RoundTimes) -> torch.Tensor:
    """bool [n]: the choice of the most tokens per second there is, by Dinkelbach's iteration.

    Each pass takes, per round, the drafter of the larger AL - rate * T, and the
    rate of that choice is the next pass's. The rate rises until it is the maximum.
    """
    delta, dearer = records.delta.double(), times.eagle3 - times.dflash
    best = torch.zeros(len(records), dtype=torch.bool)
    rate = speed(records, times, best).tokens_per_s
    while True:
        choice = delta > rate * dearer
        improved = speed(records, times, choice).tokens_per_s
        if improved <= rate:
            return best
        best, rate = choice, improved


def compare(
    records: Records, times: RoundTimes, routed: Mapping[str, torch.Tensor], negative: str = "dflash"
) -> dict[str, Speed]:
    """Every rule on the same rounds, baselines first, the upper bound last.

    Args:
        routed: bool [n] per router, True for EAGLE-3.
        negative: name of the other drafter.
    """
    n = len(records)
    choices = {
        "eagle3 alone": torch.ones(n),
        f"{negative} alone": torch.zeros(n),
        "random": torch.full((n,), 0.5),
        "best drafter per prompt (oracle)": best_per_prompt(records, times),
        **routed,
        "best drafter per round (upper bound)": best_per_round(records, times),
    }
    plain = {} if times.plain is None else {"plain decoding": Speed(n, 1.0, 1 / times.plain, None)}
    return plain | {name: speed(records, times, choice) for name, choice in choices.items()}


def compare_by_category(
    records: Records, times: RoundTimes, routed: Mapping[str, torch.Tensor], negative: str = "dflash"
) -> dict[str, dict[str, Speed]]:
    """:func:`compare` over :data:`ALL` and per category; oracles choose anew for each."""
    found = {ALL: compare(records, times, routed, negative)}
    for category in records.seen_categories:
        which = records.of_category(category)
        part = {name: choice[which] for name, choice in routed.items()}
        found[category] = compare(records.select(which), times, part, negative)
    return found

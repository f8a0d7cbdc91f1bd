"""Ratios of two arms' tokens per second, with bootstrap confidence intervals over prompts.

The arms of a run decode the same groups of conversations one after the other,
so groups are resampled in pairs: a hard prompt, or a slow moment of the
machine, is drawn for both. At concurrency 1 a group is one conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from whiflash_sglang.bench.answers import ArmRun, Group
from whiflash_sglang.bench.arm_names import DRAFTERS_ALONE, PLAIN

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)  # percentiles
ALL = "all"


@dataclass(frozen=True)
class Ratio:
    """``arm``'s tokens per second over ``base``'s; no interval where a single group leaves nothing to resample."""

    arm: str
    base: str
    category: str  # or ALL
    ratio: float
    low: float | None
    high: float | None
    groups: int

    def to_json(self) -> dict[str, Any]:
        """For the result file."""
        return asdict(self)


def all_ratios(runs: Sequence[ArmRun], seed: int = 0) -> list[Ratio]:
    """Every speculative arm against plain decoding and against each drafter alone, as far as they ran."""
    bases = [run for name in (PLAIN, *DRAFTERS_ALONE) for run in runs if run.name == name]
    return [
        ratio
        for base in bases
        for arm in runs
        if arm.name not in (base.name, PLAIN)
        for ratio in against(arm, base, seed)
    ]


def against(arm: ArmRun, base: ArmRun, seed: int = 0) -> list[Ratio]:
    """Ratios per category and, last, over all.

    The overall resample keeps each category's number of groups. Where a
    category has a single group, which would never vary, it ignores categories.
    Groups with a failed request in either arm are left out.
    """
    rng = np.random.default_rng(abs(seed))  # NumPy takes no negative seed
    strata = _pairs(arm, base)
    if not strata:
        return []
    sums = {category: _resampled_sums(rows, rng) for category, rows in strata.items()}
    found = [_ratio(arm, base, category, strata[category], sums[category]) for category in strata]
    everything = np.concatenate(list(strata.values()))
    stratified = all(len(rows) > 1 for rows in strata.values())
    total = sum(sums.values()) if stratified else _resampled_sums(everything, rng)
    return [*found, _ratio(arm, base, ALL, everything, np.asarray(total))]


def against_better_drafter(ratios: Iterable[Ratio]) -> list[Ratio]:
    """Each router's ratio against the faster of the two drafters alone; empty unless both ran.

    Which is faster is decided on the same prompts, per category and over all.
    The interval is the one against that drafter; it leaves out the choice.
    """
    found: dict[tuple[str, str], list[Ratio]] = {}
    for ratio in ratios:
        if (
            ratio.base in DRAFTERS_ALONE
            and ratio.arm not in DRAFTERS_ALONE
            and ratio.arm.startswith("whiflash:")
        ):
            found.setdefault((ratio.arm, ratio.category), []).append(ratio)
    return [min(both, key=lambda r: r.ratio) for both in found.values() if len(both) == 2]


def _pairs(arm: ArmRun, base: ArmRun) -> dict[str, np.ndarray]:
    """category -> float64 [groups, 4]: the arm's tokens and seconds, the base's tokens and seconds."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for ours, theirs in zip(arm.groups, base.groups, strict=False):  # an interrupted run ends unevenly
        if _is_whole(ours) and _is_whole(theirs):
            row = (ours.tokens, ours.seconds, theirs.tokens, theirs.seconds)
            rows.setdefault(ours.category, []).append(row)
    return {category: np.array(found, dtype=np.float64) for category, found in rows.items()}


def _is_whole(group: Group) -> bool:
    return not group.failed and group.tokens > 0 and group.seconds > 0


def _resampled_sums(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Column sums of ``rows`` [groups, columns] drawn with replacement: float64 [RESAMPLES, columns]."""
    n = len(rows)
    times_drawn = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    # Column by column: equal columns get equal sums, to the last bit.
    return np.stack([(times_drawn * column).sum(axis=1) for column in rows.T], axis=1)


def _ratio(arm: ArmRun, base: ArmRun, category: str, rows: np.ndarray, resampled: np.ndarray) -> Ratio:
    low = high = None
    if len(rows) > 1:
        low, high = (float(bound) for bound in np.percentile(_speed_ratio(resampled), INTERVAL))
    point = float(_speed_ratio(rows.sum(axis=0)))
    return Ratio(arm.name, base.name, category, point, low, high, len(rows))


def _speed_ratio(sums: np.ndarray) -> np.ndarray:
    """[..., 4] sums as in :func:`_pairs` to tokens per second of the arm over the base's."""
    return (sums[..., 0] / sums[..., 1]) / (sums[..., 2] / sums[..., 3])

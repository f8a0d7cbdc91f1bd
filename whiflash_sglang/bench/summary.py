"""Totals over answers, as the result file holds them and the tables show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from whiflash_sglang.bench.answers import Answer, ArmRun
from whiflash_sglang.metrics import Acceptance
from whiflash_sglang.round_costs import RoundCosts

_AVERAGED = ("output_tokens_per_s", "acceptance_length", "acceptance_length_before_loop")


def summarize(answers: Sequence[Answer], seconds: float) -> dict[str, Any]:
    """Totals over answers that took ``seconds`` of the arm's time."""
    counts, before_loop, costs = Acceptance(), Acceptance(), RoundCosts()
    for answer in answers:
        counts += answer.acceptance
        before_loop += answer.acceptance_before_loop
        costs += answer.costs
    tokens = sum(len(answer.output_ids) for answer in answers)
    return {
        "requests": len(answers),
        "failed": sum(answer.error is not None for answer in answers),
        "output_tokens": tokens,
        "seconds": seconds,
        "output_tokens_per_s": tokens / seconds if seconds > 0 else None,
        "acceptance_length": counts.length(),
        "acceptance_length_before_loop": before_loop.length(),
        "looped": sum(answer.loop_start is not None for answer in answers),
        "sglang_accept_length": mean(a.sglang_accept_length for a in answers),
        "rounds": counts.rounds.total(),
        "rounds_by_drafter": dict(counts.rounds),
        "acceptance_length_by_drafter": {d: counts.length(d) for d in counts.rounds},
        "share": counts.share(),
        "switches": counts.switches,
        "round_seconds": costs.total,
        "time_share": costs.time_share(),
        "switching": costs.switching_share(),
        "rows_caught_up": costs.rows,
        "rows_written_at_release": costs.released_rows,
        "histogram": _nested(counts.histogram),
        "nodes": _nested(counts.trees),
        "acceptance_by_depth": {d: counts.by_depth(d) for d in counts.rounds},
        "expected_acceptance_length": {d: counts.expected_length(d) for d in counts.rounds},
    }


def totals(run: ArmRun) -> dict[str, Any]:
    """Over all of an arm's answers."""
    return summarize(run.answers, sum(run.busy_seconds.values()))


def by_category(run: ArmRun) -> dict[str, dict[str, Any]]:
    """Per category, in the order of the run."""
    return {
        name: summarize([answer for answer in run.answers if answer.category == name], seconds)
        for name, seconds in run.busy_seconds.items()
    }


def mean_of_categories(categories: Iterable[dict[str, Any]]) -> dict[str, float | None]:
    """Unweighted means of the categories' figures, so that long answers count no more than short ones."""
    rows = list(categories)
    return {name: mean(row[name] for row in rows) for name in _AVERAGED}


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are there; None without any."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _nested(counts: Counter[tuple[str, int]]) -> dict[str, dict[str, int]]:
    """drafter -> number (accepted drafts, nodes of a tree) -> rounds."""
    found: dict[str, dict[str, int]] = {}
    for (drafter, number), rounds in sorted(counts.items()):
        found.setdefault(drafter, {})[str(number)] = rounds
    return found

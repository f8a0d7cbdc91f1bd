"""What a run says: figures per arm and category as JSON and as tables, ratios, and the lossless checks."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from whiflash_sglang.bench.answers import Answer, ArmRun
from whiflash_sglang.bench.arm_names import PLAIN
from whiflash_sglang.bench.loops import NGRAM
from whiflash_sglang.bench.lossless import Lossless
from whiflash_sglang.bench.statistics import RESAMPLES, Ratio, against_better_drafter
from whiflash_sglang.bench.summary import by_category, mean_of_categories, totals
from whiflash_sglang.bench.tables import arm_table, ratio_table, time_table, tree_table

ACCEPTANCE_FORMULA = "acceptance length = 1 + accepted drafts / verify rounds (tokens after a stop excluded)"
BEFORE_LOOP = (
    f"before loop: the same over each answer's tokens before some {NGRAM} tokens in a row occur for the third "
    "time (occurrences that do not overlap)"
)
RATIO = (
    f"ratio of tokens/s, and below it its 95 % interval: paired bootstrap over conversations (over groups of them "
    f"at a --concurrency above 1), {RESAMPLES} resamples; over all, each category keeps its size if none has just "
    "one; - where there is one only"
)
SWITCHING = (
    "switching: the part of catch-up that a run which never switches would not pay, over the rounds' time; routing "
    "is not in it (whiflash_sglang/round_costs.py); the last column counts switches"
)
EXPECTED = (
    "expected: the acceptance length that the drafter's own probabilities promised; nodes: draft tokens verified a "
    "round, the root not counted"
)
BETTER_DRAFTER = (
    "the better drafter is the faster one on these prompts, per column; the interval leaves out that choice"
)


def to_json(
    meta: dict[str, Any],
    runs: Sequence[ArmRun],
    checks: Sequence[Lossless] | None,
    ratios: Sequence[Ratio] = (),
) -> dict[str, Any]:
    """The whole result; ``schema`` counts up when a field changes its meaning.

    ``lossless`` is the last arm's check, which is the only one where one arm was checked.
    """
    by_arm = {check.arm: check.to_json() for check in checks or ()}
    definitions = {"acceptance_length": ACCEPTANCE_FORMULA, "before_loop": BEFORE_LOOP, "ratio": RATIO}
    definitions |= {"switching": SWITCHING, "expected": EXPECTED}
    return {
        "schema": 1,
        "meta": meta | environment() | definitions,
        "arms": [_arm_json(run) for run in runs],
        "ratios": [ratio.to_json() for ratio in ratios],
        "lossless": list(by_arm.values())[-1] if by_arm else None,
        "lossless_by_arm": by_arm,
    }


def environment() -> dict[str, Any]:
    """Versions and the machine, as far as they bear on the figures."""
    import torch

    packages = ("sglang", "torch", "transformers", "whiflash-sglang")
    return {
        "versions": {name: version(name) for name in packages},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def write_json(result: dict[str, Any], path: str | Path) -> None:
    """Write the result to a file, folders included."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")


def print_tables(
    runs: Sequence[ArmRun],
    checks: Sequence[Lossless] | None,
    notes: Sequence[str],
    ratios: Sequence[Ratio] = (),
) -> None:
    """On stdout: a table per arm, the ratios, what the figures mean, the lossless verdicts and notes."""
    by_arm = {check.arm: check for check in checks or ()}
    ratio_tables, legend = _ratio_tables(ratios)
    times, trees = time_table(runs), tree_table(runs)
    legend += ([SWITCHING] if times else []) + ([EXPECTED] if trees else [])
    own_tables = [arm_table(run, by_arm.get(run.name)) for run in runs]
    tables = own_tables + [table for table in (times, trees) if table is not None] + ratio_tables
    console = Console()
    # A narrow or missing terminal gets whole lines too.
    console.width = max(console.width, *(_width(console, table) for table in tables), 1)
    for table in tables:
        console.print(table)
        console.print()
    said = [ACCEPTANCE_FORMULA, BEFORE_LOOP, *legend, *(line for c in by_arm.values() for line in c.lines())]
    for line in (*said, *notes):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    for run in runs:
        for answer in run.answers:
            if answer.error is not None:
                failure = f"failed: {run.name} {answer.id}: {answer.error}"
                console.print(failure, style="red", soft_wrap=True, markup=False, highlight=False)


def _ratio_tables(ratios: Sequence[Ratio]) -> tuple[list[Table], list[str]]:
    """The tables that the arms allow, and the lines that explain them."""
    tables, legend = [], [RATIO] if ratios else []
    against_plain = [ratio for ratio in ratios if ratio.base == PLAIN]
    if against_plain:
        tables.append(ratio_table("tokens/s against plain decoding", against_plain))
    against_better = against_better_drafter(ratios)
    if against_better:
        tables.append(ratio_table("tokens/s against the better drafter alone", against_better, True))
        legend.append(BETTER_DRAFTER)
    return tables, legend


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _arm_json(run: ArmRun) -> dict[str, Any]:
    categories = by_category(run)
    return {
        "name": run.name,
        "totals": totals(run),
        "categories": categories,
        "mean_of_categories": mean_of_categories(categories.values()),
        "requests": [_request_json(answer) for answer in run.answers],
    }


def _request_json(answer: Answer) -> dict[str, Any]:
    return {
        "id": answer.id,
        "category": answer.category,
        "output_ids": answer.output_ids,
        "acceptance_length": answer.acceptance.length(),
        "acceptance_length_before_loop": answer.acceptance_before_loop.length(),
        "loop_start": answer.loop_start,
        "rounds_by_drafter": dict(answer.acceptance.rounds),
        "seconds": answer.seconds,
        "error": answer.error,
    }

"""What a run says: totals per arm and category as JSON and as a table, and the lossless check."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from whiflash_sglang.bench.answers import Answer, ArmRun
from whiflash_sglang.bench.lossless import Lossless
from whiflash_sglang.metrics import Acceptance

ACCEPTANCE_FORMULA = "acceptance length = 1 + accepted drafts / verify rounds (tokens after a stop excluded)"


def summarize(answers: Sequence[Answer], seconds: float) -> dict[str, Any]:
    """Totals over answers that took ``seconds`` of the arm's time."""
    counts = Acceptance()
    for answer in answers:
        counts += answer.acceptance
    tokens = sum(len(answer.output_ids) for answer in answers)
    return {
        "requests": len(answers),
        "failed": sum(answer.error is not None for answer in answers),
        "output_tokens": tokens,
        "seconds": seconds,
        "output_tokens_per_s": tokens / seconds if seconds > 0 else None,
        "acceptance_length": counts.length(),
        "sglang_accept_length": _mean(a.sglang_accept_length for a in answers),
        "rounds": counts.rounds.total(),
        "rounds_by_drafter": dict(counts.rounds),
        "acceptance_length_by_drafter": {d: counts.length(d) for d in counts.rounds},
        "share": counts.share(),
        "switches": counts.switches,
        "histogram": _histogram(counts),
    }


def to_json(meta: dict[str, Any], runs: Sequence[ArmRun], lossless: Lossless | None) -> dict[str, Any]:
    """The whole result; ``schema`` counts up when a field changes its meaning."""
    return {
        "schema": 1,
        "meta": meta | environment() | {"acceptance_length": ACCEPTANCE_FORMULA},
        "arms": [_arm_json(run) for run in runs],
        "lossless": None if lossless is None else lossless.to_json(),
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


def print_tables(runs: Sequence[ArmRun], lossless: Lossless | None, notes: Sequence[str]) -> None:
    """One table per arm on stdout, then the lossless verdict and notes."""
    console = Console()
    for run in runs:
        console.print(_table(run, lossless))
    console.print(ACCEPTANCE_FORMULA)
    for line in (*(lossless.lines() if lossless else ()), *notes):
        console.print(line)
    for run in runs:
        for answer in run.answers:
            if answer.error is not None:
                console.print(f"failed: {run.name} {answer.id}: {answer.error}", style="red")


def _arm_json(run: ArmRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "totals": summarize(run.answers, sum(run.busy_seconds.values())),
        "categories": {
            name: summarize([a for a in run.answers if a.category == name], seconds)
            for name, seconds in run.busy_seconds.items()
        },
        "requests": [
            {
                "id": answer.id,
                "category": answer.category,
                "output_ids": answer.output_ids,
                "acceptance_length": answer.acceptance.length(),
                "rounds_by_drafter": dict(answer.acceptance.rounds),
                "seconds": answer.seconds,
                "error": answer.error,
            }
            for answer in run.answers
        ],
    }


def _table(run: ArmRun, lossless: Lossless | None) -> Table:
    drafters = sorted({d for answer in run.answers for d in answer.acceptance.rounds})
    checked = lossless if lossless is not None and run.name == lossless.arm else None
    table = Table(title=run.name, title_justify="left")
    table.add_column("category")
    for column in ("requests", "failed", "tokens", "tok/s", "accept"):
        table.add_column(column, justify="right")
    for drafter in drafters:
        table.add_column(f"{drafter}\nrounds", justify="right")
    if checked is not None:
        table.add_column("= plain", justify="right")
    for name, seconds in run.busy_seconds.items():
        answers = [answer for answer in run.answers if answer.category == name]
        table.add_row(*_cells(name, answers, seconds, drafters, checked))
    table.add_section()
    table.add_row(*_cells(None, run.answers, sum(run.busy_seconds.values()), drafters, checked))
    return table


def _cells(
    category: str | None,
    answers: Sequence[Answer],
    seconds: float,
    drafters: Sequence[str],
    checked: Lossless | None,
) -> list[str]:
    totals = summarize(answers, seconds)
    cells = [
        category or "all",
        str(totals["requests"]),
        str(totals["failed"]),
        str(totals["output_tokens"]),
        _number(totals["output_tokens_per_s"], ".1f"),
        _number(totals["acceptance_length"], ".2f"),
        *(str(totals["rounds_by_drafter"].get(drafter, 0)) for drafter in drafters),
    ]
    return cells if checked is None else [*cells, checked.fraction(category)]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _histogram(counts: Acceptance) -> dict[str, dict[str, int]]:
    """drafter -> accepted drafts -> rounds."""
    found: dict[str, dict[str, int]] = {}
    for (drafter, accepted), rounds in sorted(counts.histogram.items()):
        found.setdefault(drafter, {})[str(accepted)] = rounds
    return found

"""The tables of a report. Heads are short, and a table is as wide as its cells: nothing is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from whiflash_sglang.bench.answers import ArmRun
from whiflash_sglang.bench.lossless import Lossless
from whiflash_sglang.bench.statistics import Ratio
from whiflash_sglang.bench.summary import by_category, mean_of_categories, totals


def arm_table(run: ArmRun, checked: Lossless | None) -> Table:
    """One arm: a row per category, over all, and the mean of the categories."""
    categories, overall = by_category(run), totals(run)
    drafters = sorted({name for row in categories.values() for name in row["rounds_by_drafter"]})
    heads = ["n", "failed", "tokens", "tok/s", "accept", "before\nloop", *(f"{d}\nrounds" for d in drafters)]
    table = _table(run.name, ["category", *heads, *(["= plain"] if checked else [])])
    for name, row in categories.items():
        table.add_row(name, *_cells(row, drafters), *([checked.fraction(name)] if checked else []))
    table.add_section()
    table.add_row("all", *_cells(overall, drafters), *([checked.fraction(None)] if checked else []))
    if len(categories) > 1:
        mean = mean_of_categories(categories.values())
        table.add_row("mean of\ncategories", "", "", "", *_averaged_cells(mean))
    return table


def time_table(runs: Sequence[ArmRun]) -> Table | None:
    """A row per arm that speculates: where a round's time goes."""
    rows = {run.name: row for run in runs if (row := totals(run))["time_share"]}
    if not rows:
        return None
    parts = list(next(iter(rows.values()))["time_share"])
    heads = [
        "ms",
        *(part.replace("_", "-\n").replace("routing", "route") for part in parts),
        "switch-\ning",
        "/ 100\nrounds",
    ]
    table = _table("a round's time in ms, and its shares in %", ["arm", *heads])
    for name, row in rows.items():
        shares = [*row["time_share"].values(), row["switching"]]
        per_round = 1000 * row["round_seconds"] / row["rounds"]
        switches = 100 * row["switches"] / row["rounds"]
        cells = [f"{per_round:.1f}", *(f"{100 * share:.1f}" for share in shares), f"{switches:.1f}"]
        table.add_row(name.removeprefix("whiflash:"), *cells)
    return table


def tree_table(runs: Sequence[ArmRun]) -> Table | None:
    """A row per arm and drafter: the trees it drafted, and how deep they were accepted."""
    rows = {(run.name, drafter): totals(run) for run in runs for drafter in totals(run)["rounds_by_drafter"]}
    depths = max((len(row["acceptance_by_depth"][drafter]) for (_, drafter), row in rows.items()), default=0)
    if not depths:
        return None
    heads = ["nodes", "accept", "ex-\npected", *(f"≥ {depth}" for depth in range(1, depths + 1))]
    table = _table(
        "drafted nodes a round, acceptance length, and % of rounds by drafts accepted",
        ["arm", "drafter", *heads],
    )
    for (name, drafter), row in rows.items():
        by_depth = [f"{100 * share:.0f}" for share in row["acceptance_by_depth"][drafter]]
        lengths = row["acceptance_length_by_drafter"], row["expected_acceptance_length"]
        table.add_row(
            name.removeprefix("whiflash:"),
            drafter,
            f"{_mean_number(row['nodes'][drafter]):.1f}",
            *(_number(length[drafter], ".2f") for length in lengths),
            *by_depth,
            *[""] * (depths - len(by_depth)),
        )
    return table


def ratio_table(title: str, ratios: Sequence[Ratio], name_the_base: bool = False) -> Table:
    """A row per arm, a column per category: ratio, and its interval below."""
    categories = list(dict.fromkeys(ratio.category for ratio in ratios))
    table = _table(title, ["arm", *categories])
    for arm in dict.fromkeys(ratio.arm for ratio in ratios):
        found = {ratio.category: ratio for ratio in ratios if ratio.arm == arm}
        table.add_row(arm, *(_ratio_cell(found.get(name), name_the_base) for name in categories))
    return table


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    return table


def _cells(row: dict[str, Any], drafters: Sequence[str]) -> list[str]:
    counts = [str(row[name]) for name in ("requests", "failed", "output_tokens")]
    rounds = [str(row["rounds_by_drafter"].get(drafter, 0)) for drafter in drafters]
    return [*counts, *_averaged_cells(row), *rounds]


def _averaged_cells(row: dict[str, Any]) -> list[str]:
    return [
        _number(row["output_tokens_per_s"], ".1f"),
        _number(row["acceptance_length"], ".2f"),
        _number(row["acceptance_length_before_loop"], ".2f"),
    ]


def _mean_number(rounds: dict[str, int]) -> float:
    return sum(int(number) * count for number, count in rounds.items()) / sum(rounds.values())


def _ratio_cell(ratio: Ratio | None, name_the_base: bool) -> str:
    if ratio is None:
        return "-"
    interval = "-" if ratio.low is None or ratio.high is None else f"{ratio.low:.2f}..{ratio.high:.2f}"
    base = f"\nof {ratio.base.removeprefix('whiflash:')}" if name_the_base else ""
    return f"{ratio.ratio:.2f}\n{interval}{base}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

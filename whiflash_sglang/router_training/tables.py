"""A trained router's figures, as terminal tables and as one flat list of rows."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whiflash_sglang.router_training.simulate import ALL, Speed
from whiflash_sglang.router_training.train import TrainResult

_FIGURES: dict[str, Callable[[Speed], str]] = {
    "tokens/s": lambda s: f"{s.tokens_per_s:.2f}",
    "tokens/round": lambda s: f"{s.tokens_per_round:.3f}",
    "EAGLE-3's share of rounds": lambda s: "-" if s.positive_share is None else f"{s.positive_share:.2f}",
}


def figure_rows(result: TrainResult, figure: str) -> list[list[str]]:
    """Head and rows of one figure: a row per rule, a column per category, "all" first."""
    show = _FIGURES[figure]
    rules = result.table[ALL]
    return [
        [figure, *result.table],
        *([rule, *(show(row[rule]) for row in result.table.values())] for rule in rules),
    ]


def figures() -> tuple[str, ...]:
    """The figures there are a table for."""
    return tuple(_FIGURES)


def fit_rows(result: TrainResult) -> list[list[str]]:
    """Head and rows: how well the kept network predicts dAL, and all seeds' mean and deviation."""
    names = {"loss": f"{result.options.loss} loss", "r_squared": "R² of dAL", "spearman": "Spearman of dAL"}
    several = len(result.runs) > 1
    head = ["on validation", f"seed {result.best.seed} (kept)"]
    rows = [[title, _number(getattr(result.best, name))] for name, title in names.items()]
    if several:
        head.append(f"{len(result.runs)} seeds, mean ± deviation")
        for row, name in zip(rows, names, strict=True):
            spread = result.spread(name)
            row.append("-" if spread is None else f"{spread[0]:.4f} ± {spread[1]:.4f}")
    return [head, *rows]


def print_tables(result: TrainResult) -> None:
    """Print all tables on stdout, each as wide as its cells."""
    tables = [_table(fit_rows(result)), *(_table(figure_rows(result, figure)) for figure in _FIGURES)]
    console = Console()
    wide = console.options.update(width=10_000)
    console.width = max(console.width, *(console.measure(t, options=wide).maximum for t in tables))
    counts = [f"{part} {p} prompts, {r} rounds" for part, (p, r) in result.counts.items()]
    console.print(f"{'; '.join(counts)}\n", highlight=False)
    for table in tables:
        console.print(table)
        console.print()
    console.print(
        f"thresholds, chosen on the training part: dAL {result.threshold:.4f}, "
        f"entropy {result.entropy_threshold:.4f} nats; EAGLE-3 above",
        highlight=False,
        soft_wrap=True,
    )


def _table(rows: list[list[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for number, head in enumerate(rows[0]):
        table.add_column(Text(head), justify="right" if number else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"

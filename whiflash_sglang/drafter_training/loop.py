"""The training loop: warm-up and cosine decay over a set time, a curve, and held-out acceptance."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from whiflash_sglang.drafter_training.states import TargetStates, Text

Loss = Callable[[list[Text]], tuple[torch.Tensor, torch.Tensor]]
_HELD_OUT_BATCH = 8
OPTIMIZERS = ("adamw", "muon")


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        minutes: wall time of the optimisation; the learning rate reaches its end with it.
        learning_rate: highest, after ``warmup`` steps.
        batch: sequences per step.
        optimizer: one of ``OPTIMIZERS``.
    """

    minutes: float
    learning_rate: float = 6e-4
    warmup: int = 40
    batch: int = 8
    evaluate_every_minutes: float = 5.0
    seed: int = 0
    optimizer: str = "adamw"


@dataclass
class Curve:
    """What training showed, over one run or several, each going on from the last.

    Attributes:
        losses: (minutes, step, loss).
        held_out: (minutes, {category: acceptance length}).
        runs: (minutes, highest learning rate, optimizer) of each run.
    """

    losses: list[tuple[float, int, float]] = field(default_factory=list)
    held_out: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    runs: list[tuple[float, float, str]] = field(default_factory=list)
    steps: int = 0
    sequences_seen: int = 0

    @classmethod
    def read(cls, path: Path) -> Curve:
        """From :meth:`write`'s file."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """As JSON, a list on a line."""
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in asdict(self).items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    @property
    def minutes(self) -> float:
        """Of all runs."""
        return sum(minutes for minutes, *_ in self.runs)


def train(
    model: nn.Module,
    loss: Loss,
    data: TargetStates,
    train_rows: Sequence[int],
    held_out: dict[str, list[int]],
    schedule: Schedule,
    save: Callable[[Curve], None],
    earlier: Curve | None = None,
) -> Curve:
    """Optimise ``model`` for ``schedule.minutes``; saves at every evaluation.

    Args:
        loss: of a list of sequences; and which drafts were right, bool [rows, depth].
        train_rows: rows of ``data`` to learn from.
        held_out: rows to measure by category, never learned from.
        save: called with the curve so far.
        earlier: of the runs that ``model`` comes from; gone on with.

    Raises:
        ValueError: no rows to learn from.
    """
    if not train_rows:
        raise ValueError("there are no rows to train on")
    torch.manual_seed(schedule.seed)
    batches = _batches(train_rows, schedule)
    optimizers = _optimizers(model, schedule)
    curve, started = earlier or Curve(), time.monotonic()
    before, first_step = curve.minutes, curve.steps
    curve.runs.append((schedule.minutes, schedule.learning_rate, schedule.optimizer))
    next_evaluation = schedule.evaluate_every_minutes
    with tqdm(total=round(schedule.minutes * 60), unit="s", desc="training") as bar:
        while (minutes := (time.monotonic() - started) / 60) < schedule.minutes:
            rate = _rate(curve.steps - first_step, minutes / schedule.minutes, schedule)
            for group in (group for optimizer in optimizers for group in optimizer.param_groups):
                group["lr"] = schedule.learning_rate * rate
            value = _step(model, optimizers, loss, [data[row] for row in next(batches)])
            curve.steps, curve.sequences_seen = curve.steps + 1, curve.sequences_seen + schedule.batch
            curve.losses.append((round(before + minutes, 2), curve.steps, round(value, 4)))
            bar.n = round(minutes * 60)
            bar.set_postfix(step=curve.steps, loss=f"{value:.3f}")
            if minutes >= next_evaluation:
                next_evaluation += schedule.evaluate_every_minutes
                _evaluate(model, loss, data, held_out, before + minutes, curve, bar)
                save(curve)
        _evaluate(model, loss, data, held_out, before + schedule.minutes, curve, bar)
    save(curve)
    return curve


def _batches(rows: Sequence[int], schedule: Schedule) -> Iterator[list[int]]:
    """Rows in a new random order for every pass, ``schedule.batch`` at a time, without end."""
    rng = random.Random(schedule.seed)
    queue: list[int] = []
    while True:
        while len(queue) < schedule.batch:
            queue += rng.sample(list(rows), len(rows))
        yield [queue.pop() for _ in range(schedule.batch)]


def _rate(step: int, done: float, schedule: Schedule) -> float:
    """Share of the highest learning rate: linear warm-up by steps, cosine to 5 % by time."""
    return min(1.0, (step + 1) / schedule.warmup) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def _optimizers(model: nn.Module, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """AdamW for every parameter; or Muon for the matrices, at AdamW's scale of updates, and AdamW for the rest.

    Source of Muon: Jordan et al. (2024); of the scale: Liu et al., "Muon is scalable for LLM training" (2025).
    """
    lr, decay = schedule.learning_rate, 0.01
    if schedule.optimizer == "adamw":
        return [torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=decay)]
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=decay),
    ]


def _step(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], loss: Loss, batch: list[Text]
) -> float:
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, _ = loss(batch)
    value.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return value.item()


def _evaluate(model, loss: Loss, data, held_out, minutes: float, curve: Curve, bar: tqdm) -> None:
    model.eval()
    lengths = acceptance_lengths(loss, data, held_out)
    model.train()
    curve.held_out.append((round(minutes, 2), lengths))
    shown = "  ".join(f"{category} {value:.2f}" for category, value in lengths.items())
    bar.write(f"{minutes:5.1f} min  step {curve.steps}  acceptance length: {shown}")


@torch.no_grad()
def acceptance_lengths(loss: Loss, data: TargetStates, rows: dict[str, list[int]]) -> dict[str, float]:
    """1 + leading right drafts of a chain, averaged over the drafts that ``loss`` tries, by category."""
    found = {}
    for category, members in rows.items():
        accepted, drafts = 0.0, 0
        for start in range(0, len(members), _HELD_OUT_BATCH):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                _, right = loss([data[i] for i in members[start : start + _HELD_OUT_BATCH]])
            accepted += right.cumprod(dim=1).sum().item()
            drafts += len(right)
        found[category] = round(1 + accepted / drafts, 3)
    return found

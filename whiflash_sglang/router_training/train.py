"""Fit the router's network to sampled rounds, and say how good it is on prompts it has not seen."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional
from tqdm import tqdm

from whiflash_sglang.router_training.model import RouterMLP, moments
from whiflash_sglang.router_training.options import TrainOptions
from whiflash_sglang.router_training.quality import r_squared, spearman
from whiflash_sglang.router_training.records import Records, Setting
from whiflash_sglang.router_training.round_times import RoundTimes
from whiflash_sglang.router_training.simulate import (
    ALL,
    Speed,
    best_threshold,
    compare_by_category,
    rate_choice,
)
from whiflash_sglang.router_training.split import split_by_prompt


@dataclass
class SeedRun:
    """One training: its network, its validation figures, and its curve.

    Attributes:
        network: reads raw hidden states, weights as they are exported; 1 or 2 outputs.
        curve: (training loss, validation loss) after each epoch.
        best_epoch: index into ``curve``; the network is that epoch's.
        r_squared, spearman: of dAL; None where it does not vary on validation.
    """

    seed: int
    network: RouterMLP
    curve: list[tuple[float, float]]
    best_epoch: int
    r_squared: float | None
    spearman: float | None

    @property
    def loss(self) -> float:
        """Validation loss of the kept epoch."""
        return self.curve[self.best_epoch][1]

    def to_json(self) -> dict[str, Any]:
        """For a report, without the network."""
        names = ("seed", "loss", "best_epoch", "r_squared", "spearman", "curve")
        return {name: getattr(self, name) for name in names}


@dataclass
class TrainResult:
    """The kept router and its figures.

    The thresholds were chosen on the training part and are the ones to route
    by, so ``table`` shows the router as it is exported. The validation part also
    chose the epoch and the seed: its figures are slightly flattering.

    Attributes:
        router: one output, dAL of raw hidden states, weights as they are exported.
        heads: two outputs, the acceptance lengths; None unless both are predicted.
        best: the kept training.
        runs: one per seed.
        threshold, entropy_threshold: EAGLE-3 above it.
        table: validation figures by category ("all" first) and rule.
        counts: "training" and "validation" -> [prompts, records].
    """

    options: TrainOptions
    setting: Setting
    times: RoundTimes
    router: RouterMLP
    heads: RouterMLP | None
    best: SeedRun
    runs: list[SeedRun]
    threshold: float
    entropy_threshold: float
    table: dict[str, dict[str, Speed]]
    counts: dict[str, tuple[int, int]]

    def spread(self, name: str) -> tuple[float, float] | None:
        """Mean and sample deviation over the seeds of ``loss``, ``r_squared`` or ``spearman``; None below two."""
        values = [value for run in self.runs if (value := getattr(run, name)) is not None]
        return (statistics.mean(values), statistics.stdev(values)) if len(values) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Everything but the networks."""
        return {
            "setting": self.setting.to_json(),
            "options": asdict(self.options),
            "round_times": asdict(self.times),
            "counts": {part: {"prompts": p, "records": r} for part, (p, r) in self.counts.items()},
            "threshold": self.threshold,
            "entropy_threshold": self.entropy_threshold,
            "kept_seed": self.best.seed,
            "runs": [run.to_json() for run in self.runs],
            "mean_and_deviation": {name: self.spread(name) for name in ("loss", "r_squared", "spearman")},
            "validation": {
                c: {rule: s.to_json() for rule, s in row.items()} for c, row in self.table.items()
            },
        }


def train(records: Records, setting: Setting, times: RoundTimes, options: TrainOptions) -> TrainResult:
    """Split by prompt, train once per seed, keep the best on validation, and simulate it there.

    Raises:
        ValueError: fewer than two prompts, a category named like the row over all, a
            dAL that does not vary in training, or a loss that is not finite.
    """
    if ALL in records.categories:
        raise ValueError(f"--data has a category named {ALL!r}, which is the name of the figures over all")
    training, validation = split_by_prompt(records, options.validation_fraction, options.seed)
    delta = training.delta
    if float(delta.min()) == float(delta.max()):
        raise ValueError(
            f"--data: dAL is {float(delta[0]):g} in all {len(delta)} training rounds; nothing to learn"
        )
    _refuse_missing(options.device)
    runs = [_fit(training, validation, options, options.seed + i) for i in range(options.seeds)]
    best = min(runs, key=lambda run: run.loss)
    router = best.network.difference().rounded(getattr(torch, options.weights))
    heads = best.network if options.predict == "both" else None
    threshold, _ = best_threshold(router.predict(training.hidden)[:, 0], training, times)
    # The entropy router's flag takes no threshold below 0.
    entropy_threshold = max(best_threshold(training.entropy, training, times)[0], 0.0)
    routed = {
        "entropy router": validation.entropy > entropy_threshold,
        "neural router": router.predict(validation.hidden)[:, 0] > threshold,
    }
    if heads is not None:
        routed["rate router"] = rate_choice(heads.predict(validation.hidden), times)
    table = compare_by_category(validation, times, routed, setting.negative)
    counts = {"training": _count(training), "validation": _count(validation)}
    kept = (router, heads, best, runs)
    return TrainResult(options, setting, times, *kept, threshold, entropy_threshold, table, counts)


def _refuse_missing(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {device!r} is not available: {str(error).splitlines()[0]}") from error


def _count(records: Records) -> tuple[int, int]:
    return len(records.prompt.unique()), len(records)


def _targets(records: Records, options: TrainOptions) -> torch.Tensor:
    """What the network learns: float32 [n, 1] or [n, 2]."""
    columns = [records.al_pos, records.al_neg] if options.predict == "both" else [records.delta]
    return torch.stack(columns, dim=1)


def _fit(training: Records, validation: Records, options: TrainOptions, seed: int) -> SeedRun:
    """Train one network; early stopping restores the epoch of the least validation loss."""
    mean, std = moments(training.hidden)
    fitter = _Fitter(options, seed, mean, std, _targets(training, options))
    curve: list[tuple[float, float]] = []
    best_epoch, best_state = 0, copy.deepcopy(fitter.network.state_dict())
    target = _targets(validation, options)
    epochs = tqdm(range(options.max_epochs), desc=f"seed {seed}", unit="epoch")
    for epoch in epochs:
        curve.append((fitter.epoch(training.hidden), fitter.loss_on(validation.hidden, target)))
        if not all(map(math.isfinite, curve[-1])):
            raise ValueError(f"the loss is {curve[-1]} in epoch {epoch}; --lr {options.lr} may be too high")
        if epoch == 0 or curve[epoch][1] < curve[best_epoch][1]:
            best_epoch, best_state = epoch, copy.deepcopy(fitter.network.state_dict())
        epochs.set_postfix(train=f"{curve[-1][0]:.4f}", val=f"{curve[-1][1]:.4f}", best=best_epoch)
        if epoch - best_epoch >= options.patience:
            break
    epochs.close()
    fitter.network.load_state_dict(best_state)
    network = fitter.network.folded(mean, std).rounded(getattr(torch, options.weights))
    predicted = network.difference().predict(validation.hidden)[:, 0]
    fit = r_squared(predicted, validation.delta), spearman(predicted, validation.delta)
    return SeedRun(seed, network, curve, best_epoch, *fit)


class _Fitter:
    """A network on standardised hidden states, its optimiser, and the order of its batches."""

    def __init__(
        self, options: TrainOptions, seed: int, mean: torch.Tensor, std: torch.Tensor, target: torch.Tensor
    ) -> None:
        self.options, self.target = options, target
        self.device = torch.device(options.device)
        self.mean = mean.to(self.device, torch.float32)
        self.std = std.to(self.device, torch.float32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = RouterMLP(len(mean), options.width, target.shape[1])
        with torch.no_grad():
            network.fc2.bias.copy_(target.mean(0))  # starts at the mean, so only differences are learned
        self.network = network.to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=options.lr, weight_decay=options.weight_decay
        )
        self.order = torch.Generator().manual_seed(seed)

    def epoch(self, hidden: torch.Tensor) -> float:
        """One pass over hidden [n, H]; the mean loss on the way."""
        total = 0.0
        for rows in torch.randperm(len(hidden), generator=self.order).split(self.options.batch_size):
            loss = self._loss(hidden[rows], self.target[rows])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += float(loss.detach()) * len(rows)
        return total / len(hidden)

    @torch.no_grad()
    def loss_on(self, hidden: torch.Tensor, target: torch.Tensor) -> float:
        """Mean loss over hidden [n, H] and target [n, outputs]."""
        parts: Sequence[tuple[torch.Tensor, torch.Tensor]] = list(
            zip(hidden.split(8192), target.split(8192), strict=True)
        )
        return sum(float(self._loss(h, t)) * len(h) for h, t in parts) / len(hidden)

    def _loss(self, hidden: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        predicted = self.network((hidden.to(self.device).float() - self.mean) / self.std)
        target = target.to(self.device)
        if self.options.loss == "huber":
            return functional.huber_loss(predicted, target, delta=self.options.huber_delta)
        return functional.mse_loss(predicted, target)

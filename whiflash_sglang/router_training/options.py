"""How a router is trained: the fields are the flags of ``scripts/train_router.py``."""

from __future__ import annotations

import argparse
import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any


def _option(default: Any, help: str, **argparse_options: Any) -> Any:
    return field(default=default, metadata={"help": help, "argparse": argparse_options})


@dataclass(frozen=True)
class TrainOptions:
    """Checked when made.

    Raises:
        ValueError: names the flag and the value.
    """

    width: int = _option(512, "Width of the hidden layer.")
    loss: str = _option("mse", "Loss.", choices=("mse", "huber"))
    huber_delta: float = _option(1.0, "Where Huber's loss turns linear, in tokens.")
    predict: str = _option(
        "delta",
        "Predict dAL, or both acceptance lengths (adds the rate router).",
        choices=("delta", "both"),
    )
    lr: float = _option(1e-3, "AdamW's learning rate.")
    weight_decay: float = _option(0.01, "AdamW's weight decay.")
    batch_size: int = _option(256, "Rounds a step.")
    max_epochs: int = _option(100, "Passes over the training part at most.")
    patience: int = _option(8, "Passes without a better validation loss before training ends.")
    validation_fraction: float = _option(0.15, "Share of each category's prompts to hold out.")
    seed: int = _option(0, "Seed of the split and of the first training.")
    seeds: int = _option(1, "Trainings with seeds SEED, SEED+1, ...; the best on validation is kept.")
    weights: str = _option("float32", "Type of the exported weights.", choices=("float32", "bfloat16"))
    device: str = _option("cpu", "Where to train, e.g. cuda.")

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            choices = f.metadata["argparse"].get("choices")
            if choices and getattr(self, f.name) not in choices:
                raise ValueError(
                    f"{_flag(f.name)} is {getattr(self, f.name)!r}; choose one of {', '.join(choices)}"
                )
        for name in ("width", "batch_size", "max_epochs", "patience", "seeds", "lr", "huber_delta"):
            self._require(name, "above 0", getattr(self, name) > 0)
        for name in ("weight_decay", "seed"):
            self._require(name, "at least 0", getattr(self, name) >= 0)
        self._require("validation_fraction", "between 0 and 1", 0 < self.validation_fraction < 1)

    def _require(self, name: str, what: str, holds: bool) -> None:
        value = getattr(self, name)
        if not (holds and math.isfinite(value)):
            raise ValueError(f"{_flag(name)} is {value}; it must be {what}")


def add_flags(parser: argparse._ActionsContainer) -> None:
    """One flag per field, with its default."""
    for f in dataclasses.fields(TrainOptions):
        kind, said = type(f.default), f"{f.metadata['help']} [default: {f.default}]"
        parser.add_argument(_flag(f.name), type=kind, default=f.default, help=said, **f.metadata["argparse"])


def from_flags(args: argparse.Namespace) -> TrainOptions:
    """The options that parsed flags give.

    Raises:
        ValueError: see :class:`TrainOptions`.
    """
    return TrainOptions(**{f.name: getattr(args, f.name) for f in dataclasses.fields(TrainOptions)})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

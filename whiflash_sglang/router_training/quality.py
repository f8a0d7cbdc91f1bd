"""How well a prediction fits: share of variance explained, and rank correlation."""

from __future__ import annotations

import torch


def r_squared(predicted: torch.Tensor, actual: torch.Tensor) -> float | None:
    """1 - squared error / variance of ``actual``, both float [n]; None where it does not vary."""
    actual, predicted = actual.double(), predicted.double()
    total = float((actual - actual.mean()).square().sum())
    return None if total == 0 else 1 - float((actual - predicted).square().sum()) / total


def spearman(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """Spearman's rank correlation of two float [n], ties by mean rank; None where one does not vary."""
    a, b = ranks(one), ranks(other)
    a, b = a - a.mean(), b - b.mean()
    scale = float(a.norm() * b.norm())
    return None if scale == 0 else float(a @ b) / scale


def ranks(values: torch.Tensor) -> torch.Tensor:
    """Ranks from 1, float64 [n]; equal values share their mean rank."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1) / 2)[place]

"""Trees and comparisons shared by the kernel tests."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def random_parents(bs: int, n: int, seed: int = 0) -> torch.Tensor:
    """int64 [bs, n - 1]: parents of nodes 1..n-1 of random trees, parents before children."""
    coin = torch.Generator().manual_seed(seed)
    below = torch.arange(1, n).expand(bs, -1)
    return (torch.rand(bs, n - 1, generator=coin) * below).long()


def assert_same(kernel: Iterable[torch.Tensor], reference: Iterable[torch.Tensor]) -> None:
    """Equal dtypes, shapes and values, field by field."""
    for got, wanted in zip(kernel, reference, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)

"""Decisions that every tensor-parallel rank must take alike: rank 0's."""

from __future__ import annotations

import torch
from sglang.srt.runtime_context import get_parallel


def broadcast(values: torch.Tensor) -> torch.Tensor:
    """Rank 0's values, in place; nothing to do on one rank."""
    group = get_parallel().tp_group
    if group.world_size > 1:
        group.broadcast(values, src=0)
    return values


def rank_0s(number: int, device: str) -> int:
    """Rank 0's number; waits for the device only where there are several ranks."""
    if get_parallel().tp_group.world_size == 1:
        return number
    return int(broadcast(torch.tensor([number], dtype=torch.int64, device=device)).item())

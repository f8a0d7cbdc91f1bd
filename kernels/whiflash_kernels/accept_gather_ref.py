"""Plain-torch references of :mod:`whiflash_kernels.accept_gather`."""

from __future__ import annotations

import torch


def pending_put_ref(
    features_buf: torch.Tensor,
    next_tokens_buf: torch.Tensor,
    positions_buf: torch.Tensor,
    slots: torch.Tensor,
    first: torch.Tensor,
    features: torch.Tensor,
    next_tokens: torch.Tensor,
    lens: torch.Tensor | None = None,
) -> None:
    """See :func:`whiflash_kernels.accept_gather.pending_put`."""
    row = torch.arange(features.shape[1], device=features.device)
    positions = first[:, None] + row
    written = (positions >= 0) & _within(slots, features_buf.shape[0])[:, None]
    if lens is not None:
        written &= row < lens[:, None]
    at = slots[:, None].expand_as(positions)[written], positions[written] % features_buf.shape[1]
    features_buf[at] = features[written]
    next_tokens_buf[at] = next_tokens[written].to(next_tokens_buf.dtype)
    positions_buf[at] = positions[written].to(positions_buf.dtype)


def pending_take_ref(
    features_buf: torch.Tensor, next_tokens_buf: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`whiflash_kernels.accept_gather.pending_take`."""
    known = _within(slots, features_buf.shape[0]) & (positions >= 0)
    at = slots[known], positions[known] % features_buf.shape[1]
    features = features_buf.new_zeros((slots.shape[0], features_buf.shape[2]))
    next_tokens = next_tokens_buf.new_full((slots.shape[0],), -1)
    features[known], next_tokens[known] = features_buf[at], next_tokens_buf[at]
    return features, next_tokens


def kv_move_ref(buffer: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
    """See :func:`whiflash_kernels.accept_gather.kv_move`."""
    moved = _within(source, buffer.shape[0]) & _within(target, buffer.shape[0])
    buffer[target[moved]] = buffer[source[moved]]


def _within(index: torch.Tensor, size: int) -> torch.Tensor:
    return (index >= 0) & (index < size)

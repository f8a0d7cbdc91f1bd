"""Plain-torch reference of :mod:`whiflash_kernels.router_mlp`."""

from __future__ import annotations

import torch
from torch.nn import functional


def router_mlp_ref(
    hidden: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> torch.Tensor:
    """See :func:`whiflash_kernels.router_mlp.router_mlp`."""
    inner = functional.gelu(functional.linear(hidden.float(), w1.float(), b1.float()))
    return functional.linear(inner, w2.float(), b2.float()).squeeze(-1)


def router_gather_ref(
    scores: torch.Tensor, accept_index: torch.Tensor, accept_lens: torch.Tensor
) -> torch.Tensor:
    """See :func:`whiflash_kernels.router_mlp.router_gather`."""
    rows, steps = scores.shape[0], accept_index.shape[1]
    if rows == 0 or steps == 0:
        return torch.full((accept_index.shape[0],), float("nan"), device=scores.device)
    last = accept_lens.to(torch.int64) - 1
    at = accept_index.to(torch.int64).gather(1, last.clamp(0, steps - 1)[:, None]).squeeze(1)
    known = (last >= 0) & (last < steps) & (at >= 0) & (at < rows)
    return torch.where(known, scores.float()[at.clamp(0, rows - 1)], float("nan"))

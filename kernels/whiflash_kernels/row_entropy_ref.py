"""Plain-torch reference of :mod:`whiflash_kernels.row_entropy`."""

from __future__ import annotations

import torch


def row_entropy_ref(
    logits: torch.Tensor, rows: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`whiflash_kernels.row_entropy.row_entropy`."""
    total = logits.shape[0]
    if rows is None:
        rows = torch.arange(total, device=logits.device)
    elif total == 0:
        nothing = torch.full((rows.shape[0],), float("nan"), device=logits.device)
        return nothing, nothing.clone()
    known = (rows >= 0) & (rows < total)
    log_p = torch.log_softmax(logits[rows.clamp(0, max(total - 1, 0))].float(), dim=-1)
    terms = torch.where(log_p == float("-inf"), 0.0, log_p.exp() * log_p)
    entropy, top1 = -terms.sum(dim=-1), log_p.amax(dim=-1).exp()
    return torch.where(known, entropy, float("nan")), torch.where(known, top1, float("nan"))

"""The definition of :func:`whiflash_kernels.tree_build.tree_build` in plain torch."""

from __future__ import annotations

import torch

from whiflash_kernels.checks import INTEGERS, require, require_dtype, require_rank

Links = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def tree_build_ref(parents: torch.Tensor) -> Links:
    """The fields of ``TreeLinks``, in order, from parents int32 or int64 [bs, n - 1].

    Raises:
        ValueError: wrong dtype or rank, or a parent of node i + 1 outside [0, i].
    """
    require_rank("parents", parents, 2)
    require_dtype("parents", parents, INTEGERS)
    bs, n = parents.shape[0], parents.shape[1] + 1
    node = torch.arange(n, device=parents.device)
    parents = parents.to(torch.int64)
    early = (parents >= 0) & (parents <= node[:-1])
    require(bool(early.all()), f"parents: {parents[~early].tolist()} are not nodes before their children")

    mask = torch.zeros(bs, n, n, dtype=torch.bool, device=parents.device)
    mask[:, 0, 0] = True
    requests = torch.arange(bs, device=parents.device)
    for i in range(1, n):
        mask[:, i] = mask[requests, parents[:, i - 1]]
        mask[:, i, i] = True

    parent_of = torch.cat([torch.full_like(node[:1].expand(bs, 1), -1), parents], dim=1)
    is_child = parent_of[:, None, :] == node[None, :, None]
    is_younger = (parent_of[:, None, :] == parent_of[:, :, None]) & (node[None, :] > node[:, None])
    return (
        mask,
        _pack(mask),
        mask.sum(dim=2) - 1,
        torch.arange(bs * n, device=parents.device).view(bs, n),
        _first(is_child),
        _first(is_younger),
    )


def _first(hits: torch.Tensor) -> torch.Tensor:
    """Index of the first hit of each row of bool [bs, n, n], or -1; int64 [bs, n]."""
    return torch.where(hits.any(dim=2), hits.to(torch.int8).argmax(dim=2), -1)


def _pack(mask: torch.Tensor) -> torch.Tensor:
    """Rows of bool [bs, n, n] as int32 words [bs, n, ceil(n / 32)], lowest bit first."""
    bs, n, _ = mask.shape
    words = -(-n // 32)
    padded = torch.nn.functional.pad(mask, (0, words * 32 - n)).view(bs, n, words, 32)
    values = (padded.to(torch.int64) << torch.arange(32, device=mask.device)).sum(dim=3)
    return values.to(torch.int32)  # keeps the low 32 bits

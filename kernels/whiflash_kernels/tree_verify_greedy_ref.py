"""The definition of :func:`whiflash_kernels.tree_verify_greedy.tree_verify_greedy` in plain torch."""

from __future__ import annotations

import torch

from whiflash_kernels.checks import require_dtype, require_same_device, require_shape, require_tree


def tree_verify_greedy_ref(
    candidates: torch.Tensor,
    target_argmax: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    max_depth: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Accept index int32 [bs, max_depth + 1], accept lengths int32 [bs], bonus tokens int64 [bs].

    All inputs are int64 [bs, n].

    Raises:
        ValueError: wrong shape, dtype or device, no node, or a negative max_depth.
    """
    check_greedy(candidates, target_argmax, next_token, next_sibling, max_depth)
    return follow(candidates, target_argmax, next_token, next_sibling, max_depth)


def check_greedy(
    candidates: torch.Tensor,
    target_argmax: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    max_depth: int,
) -> None:
    """Raise ValueError unless the arguments fit together."""
    require_tree(candidates, next_token, next_sibling, max_depth)
    require_shape("target_argmax", target_argmax, tuple(candidates.shape))
    require_dtype("target_argmax", target_argmax, (torch.int64,))
    require_same_device(candidates=candidates, target_argmax=target_argmax)


def follow(
    candidates: torch.Tensor,
    chosen: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    max_depth: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Walk each tree along the tokens chosen for its nodes, int64 [bs, n]; as ``tree_verify_greedy_ref``."""
    bs, n = candidates.shape
    accept_index = torch.full((bs, max_depth + 1), -1, dtype=torch.int32)
    lengths, bonus = [], []
    trees = zip(*(x.tolist() for x in (candidates, chosen, next_token, next_sibling)), strict=True)
    for b, (drafted, target, first_child, sibling) in enumerate(trees):
        path = [0]
        while len(path) <= max_depth:
            child = first_child[path[-1]]
            while child != -1 and drafted[child] != target[path[-1]]:
                child = sibling[child]
            if child == -1:
                break
            path.append(child)
        accept_index[b, : len(path)] = b * n + torch.tensor(path, dtype=torch.int32)
        lengths.append(len(path))
        bonus.append(target[path[-1]])
    device = candidates.device
    return (
        accept_index.to(device),
        torch.tensor(lengths, dtype=torch.int32, device=device),
        torch.tensor(bonus, dtype=torch.int64, device=device),
    )

"""Small draft trees, and what they mean, by brute force."""

from __future__ import annotations

import random
from types import SimpleNamespace

import torch

from whiflash_sglang.cpu.ops import _write_tree


def random_parents(nodes: int, coin: random.Random) -> list[int]:
    """Parents of nodes 1..nodes-1 of a random tree; parents come before children."""
    return [coin.randrange(node) for node in range(1, nodes)]


def path_to(node: int, parents: list[int]) -> list[int]:
    """Nodes from the root to ``node``."""
    path = [node]
    while path[-1] != 0:
        path.append(parents[path[-1] - 1])
    return path[::-1]


def links(parents: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(mask [n, n], first child [n], next sibling [n])."""
    n = len(parents) + 1
    mask = torch.zeros(n, n, dtype=torch.bool)
    child, sibling = torch.empty(n, dtype=torch.int64), torch.empty(n, dtype=torch.int64)
    _write_tree(parents, mask, child, sibling)
    return mask, child, sibling


def verify_input(parents: list[int], drafted: torch.Tensor) -> SimpleNamespace:
    """What the tree walk reads of an EagleVerifyInput, for drafted tokens [requests, nodes]."""
    bs, n = drafted.shape
    _, child, sibling = links(parents)
    depth = max(len(path_to(node, parents)) for node in range(n))
    return SimpleNamespace(
        draft_token=drafted.flatten(),
        draft_token_num=n,
        max_tree_depth=depth,
        tree_topk=-1,
        retrieve_index=torch.arange(bs * n).view(bs, n),
        retrieve_next_token=child.repeat(bs, 1),
        retrieve_next_sibling=sibling.repeat(bs, 1),
    )

"""Verify inputs for trees of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.speculative.eagle_utils import default_tree_mask_mode
from sglang.srt.speculative.eagle_worker_common import build_eagle_verify_input


def tree_verify_input(
    batch: Any, draft_tokens: torch.Tensor, parents: Sequence[Sequence[int]], depth: int, target_worker: Any
) -> Any:
    """An ``EagleVerifyInput`` of the bonus token and a tree below it.

    Args:
        batch: SGLang's ScheduleBatch; its ``spec_info.bonus_tokens`` are the roots.
        draft_tokens: int64 [requests, nodes], children of a node distinct.
        parents: per request and node, the index of its parent node; -1 is the root.
        depth: of the deepest tree that this drafter can make.
        target_worker: the target whose attention backend lays out the mask.
    """
    nodes = draft_tokens.shape[1]
    device = draft_tokens.device
    expansions, candidates = zip(*(as_eagle_candidates(row, depth) for row in parents), strict=True)
    return build_eagle_verify_input(
        batch,
        batch.spec_info,
        torch.tensor(expansions, device=device),
        torch.tensor(candidates, device=device),
        draft_tokens,
        None,
        target_worker=target_worker,
        topk=nodes,
        num_steps=depth,
        num_draft_tokens=nodes + 1,
        tree_mask_mode=default_tree_mask_mode(),
        device=device,
    )


def as_eagle_candidates(parents: Sequence[int], depth: int) -> tuple[list[int], list[int]]:
    """A tree in EAGLE's bookkeeping of a top-n draft, n being the number of nodes.

    There, candidate c is the child number c % n of expansion c // n; expansion 0
    is the root's, and the list of expansions names the candidate each other one
    expands. Here every node has an expansion of its own.

    Returns:
        The expanded candidates [1 + n * (depth - 1)], and each node's candidate [n].
    """
    n = len(parents)
    children = [0] * (n + 1)
    candidates: list[int] = []
    for parent in parents:
        candidates.append((parent + 1) * n + children[parent + 1])
        children[parent + 1] += 1
    expansions = [0] * (1 + n * (depth - 1))
    for node in range(min(n, len(expansions) - 1)):
        expansions[node + 1] = candidates[node]
    return expansions, candidates

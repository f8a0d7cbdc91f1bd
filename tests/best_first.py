"""DDTree's search once more, independently: a block's most probable prefixes, its positions taken as independent.

A node of depth d stands for a prefix of d tokens; its log-probability is the sum
of its tokens' at their positions. The search pops nodes from the most probable
on. A popped node makes its next sibling (same parent, next rank) and its first
child (next depth, rank 0) available, so with a heap a budget of B nodes costs
O(B log B), and the B nodes popped are the B most probable of all.

Source: DDTree, as described in the WhiFlash model cards.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """One drafted token: under node ``parent`` (-1 is the root), the ``rank``-th best of position ``depth``."""

    parent: int
    depth: int  # 1 is the token after the bonus token
    rank: int
    log_prob: float  # of the whole prefix


def best_first(log_probs: Sequence[Sequence[float]], budget: int) -> list[Node]:
    """The ``budget`` most probable nodes, most probable first, parents before their children.

    Args:
        log_probs: per depth, log-probabilities of its best tokens, best first.
        budget: nodes; fewer come back where there are no more.

    Ties go to the smaller depth, then to the smaller rank.
    """
    if not log_probs or not log_probs[0]:
        return []
    nodes: list[Node] = []
    heap = [(-log_probs[0][0], 1, 0, 0, -1)]  # (-log_prob, depth, rank, order of arrival, parent)
    arrivals = 0

    def offer(parent: int, depth: int, rank: int) -> None:
        nonlocal arrivals
        if depth <= len(log_probs) and rank < len(log_probs[depth - 1]):
            arrivals += 1
            above = nodes[parent].log_prob if parent >= 0 else 0.0
            heapq.heappush(heap, (-(above + log_probs[depth - 1][rank]), depth, rank, arrivals, parent))

    while heap and len(nodes) < budget:
        negative, depth, rank, _, parent = heapq.heappop(heap)
        nodes.append(Node(parent, depth, rank, -negative))
        offer(parent, depth, rank + 1)
        offer(len(nodes) - 1, depth + 1, 0)
    return nodes

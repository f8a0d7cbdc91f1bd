"""The definition of :func:`whiflash_kernels.ddtree_build.ddtree_build` in plain torch and Python."""

from __future__ import annotations

import heapq
import math

import torch

from whiflash_kernels.checks import (
    FLOATS,
    require,
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
)

MAX_BUDGET = 512  # the kernel's frontier is held in one warp's registers
MAX_DEPTH = 1023  # and its order in one int32

Tree = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def ddtree_build_ref(logits: torch.Tensor, budget: int, min_prob: torch.Tensor | float = 0.0) -> Tree:
    """The fields of ``DraftTree``, in order; arguments and errors are those of ``ddtree_build``."""
    check_ddtree(logits, budget, min_prob)
    return best_first_ref(*top_log_probs(logits, budget), budget, log_price(min_prob, logits))


def best_first_ref(log_probs: torch.Tensor, ids: torch.Tensor, budget: int, price: torch.Tensor) -> Tree:
    """The search alone; arguments are those of ``best_first``."""
    bs = log_probs.shape[0]
    tokens = torch.zeros(bs, budget, dtype=torch.int64)
    parents = torch.full((bs, budget), -1, dtype=torch.int32)
    depths = torch.zeros(bs, budget, dtype=torch.int32)
    totals = torch.full((bs, budget), -torch.inf)
    counts = torch.zeros(bs, dtype=torch.int32)
    prices = price.tolist()
    for b, (rows, row_ids) in enumerate(zip(log_probs.tolist(), ids.tolist(), strict=True)):
        nodes = _search(rows, budget, prices[b])
        counts[b] = len(nodes)
        for i, (total, depth, rank, parent) in enumerate(nodes):
            tokens[b, i], parents[b, i], depths[b, i] = row_ids[depth - 1][rank], parent, depth
            totals[b, i] = total
    tree = (tokens, parents, depths, totals, counts)
    return tuple(tensor.to(log_probs.device) for tensor in tree)


def check_ddtree(logits: torch.Tensor, budget: int, min_prob: torch.Tensor | float) -> None:
    """Raise ValueError unless the arguments fit together."""
    require_rank("logits", logits, 3)
    require_dtype("logits", logits, FLOATS)
    require(0 < budget <= MAX_BUDGET, f"budget: {budget} is not in 1 to {MAX_BUDGET}")
    require(logits.shape[1] <= MAX_DEPTH, f"logits: {logits.shape[1]} positions, at most {MAX_DEPTH}")
    if isinstance(min_prob, torch.Tensor):
        require_shape("min_prob", min_prob, (logits.shape[0],))
        require_dtype("min_prob", min_prob, (torch.float32,))
        require_same_device(logits=logits, min_prob=min_prob)


def top_log_probs(logits: torch.Tensor, budget: int) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 log-probabilities and int64 ids [bs, depth, min(budget, V)] of each position's best tokens."""
    best, ids = logits.topk(min(budget, logits.shape[2]), dim=-1)
    return best.float() - logits.float().logsumexp(dim=-1, keepdim=True), ids


def log_price(min_prob: torch.Tensor | float, logits: torch.Tensor) -> torch.Tensor:
    """float64 [bs]: the log-probability below which no node pays."""
    if isinstance(min_prob, torch.Tensor):
        return min_prob.double().clamp(min=0).log()
    price = math.log(min_prob) if min_prob > 0 else -math.inf
    return torch.full(logits.shape[:1], price, dtype=torch.float64, device=logits.device)


def _search(log_probs: list[list[float]], budget: int, price: float) -> list[tuple[float, int, int, int]]:
    """(log-probability, depth, rank, parent) of the nodes taken; log_probs falls along each depth."""
    nodes: list[tuple[float, int, int, int]] = []
    frontier: list[tuple[float, int, int, int]] = []  # (minus log-probability, depth, rank, parent)

    def offer(depth: int, rank: int, parent: int) -> None:
        if depth <= len(log_probs) and rank < len(log_probs[depth - 1]):
            above = nodes[parent][0] if parent >= 0 else 0.0
            heapq.heappush(frontier, (-(above + log_probs[depth - 1][rank]), depth, rank, parent))

    offer(1, 0, -1)
    while frontier and len(nodes) < budget and -frontier[0][0] >= price:
        negative, depth, rank, parent = heapq.heappop(frontier)
        nodes.append((-negative, depth, rank, parent))
        offer(depth, rank + 1, parent)
        offer(depth + 1, 0, len(nodes) - 1)
    return nodes

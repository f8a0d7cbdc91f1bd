"""DDTree on the device: the most probable prefixes of a drafted block, as a tree.

A row-wise top-k and log-normaliser by torch, then the search in one launch with one
program per request. Floor: ``bs * depth * V * itemsize`` bytes of logits over the memory
bandwidth, which torch reads twice, and one launch; the search itself is ``budget``
dependent steps. Not measured on a GPU.

Source: DDTree's best-first search over per-position log-probabilities taken as independent.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from whiflash_kernels.ddtree_build_ref import (
    best_first_ref,
    check_ddtree,
    ddtree_build_ref,
    log_price,
    top_log_probs,
)


class DraftTree(NamedTuple):
    """Drafted nodes of ``bs`` requests, most probable first; the root (the bonus token) is not among them.

    tokens: int64 [bs, budget]. parents: int32 [bs, budget], the node above, -1 for the root
    (so ``parents + 1`` is what ``tree_build`` takes). depths: int32 [bs, budget], 1 at the
    root's children. log_probs: float32 [bs, budget], of the whole prefix. counts: int32 [bs].
    From ``counts`` on the entries are token 0, parent -1, depth 0 and -inf.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor
    log_probs: torch.Tensor
    counts: torch.Tensor


def ddtree_build(logits: torch.Tensor, budget: int, min_prob: torch.Tensor | float = 0.0) -> DraftTree:
    """The ``budget`` most probable prefixes of a block, its positions taken as independent.

    Nodes are taken from the most probable on, ties by (depth, rank), then by the parent's
    place. Where fewer prefixes exist than the budget allows, all of them are taken. Which of
    several equal logits has the better rank is left to ``torch.topk``.

    Args:
        logits: float32, bfloat16 or float16 [bs, depth, V], the draft's, any strides, no NaN.
        budget: nodes, 1 to 512, the root not counted.
        min_prob: the marginal price of a node, a number or float32 [bs]: the search stops
            when the next prefix is less probable than this.

    Raises:
        ValueError: wrong shape, dtype or device, a budget outside 1 to 512, more than 1023 positions.
    """
    if logits.is_cuda:
        return ddtree_build_triton(logits, budget, min_prob)
    return DraftTree(*ddtree_build_ref(logits, budget, min_prob))


def ddtree_build_triton(logits: torch.Tensor, budget: int, min_prob: torch.Tensor | float = 0.0) -> DraftTree:
    """See :func:`ddtree_build`."""
    check_ddtree(logits, budget, min_prob)
    log_probs, tokens = top_log_probs(logits, budget)
    return best_first_triton(log_probs, tokens, budget, log_price(min_prob, logits))


def best_first(
    log_probs: torch.Tensor, tokens: torch.Tensor, budget: int, price: torch.Tensor | None = None
) -> DraftTree:
    """The search alone, for log-probabilities that are there already. Floor: one launch.

    Args:
        log_probs: float32 [bs, depth, ranks], falling along ranks. tokens: int64, alike.
        budget: nodes, 1 to 512, the root not counted.
        price: float64 [bs], the log-probability below which no node is taken; None for none.
    """
    if price is None:
        price = torch.full(log_probs.shape[:1], -torch.inf, dtype=torch.float64, device=log_probs.device)
    if log_probs.is_cuda:
        return best_first_triton(log_probs, tokens, budget, price)
    return DraftTree(*best_first_ref(log_probs, tokens, budget, price))


def best_first_triton(
    log_probs: torch.Tensor, tokens: torch.Tensor, budget: int, price: torch.Tensor
) -> DraftTree:
    """See :func:`best_first`; one program per request."""
    bs, depth, ranks = log_probs.shape
    device = log_probs.device
    tree = DraftTree(
        torch.empty(bs, budget, dtype=torch.int64, device=device),
        torch.empty(bs, budget, dtype=torch.int32, device=device),
        torch.empty(bs, budget, dtype=torch.int32, device=device),
        torch.empty(bs, budget, dtype=torch.float32, device=device),
        torch.empty(bs, dtype=torch.int32, device=device),
    )
    if bs == 0:
        return tree
    _best_first_kernel[(bs,)](
        log_probs.contiguous(),
        tokens.contiguous(),
        price.contiguous(),
        *tree,
        depth,
        ranks,
        budget,
        BLOCK=triton.next_power_of_2(budget),
        num_warps=1,
    )
    return tree


@triton.jit
def _best_first_kernel(
    log_probs_ptr,
    token_ids_ptr,
    price_ptr,
    tokens_ptr,
    parents_ptr,
    depths_ptr,
    out_log_probs_ptr,
    counts_ptr,
    depth,
    ranks,
    budget,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    log_probs_ptr += request * depth * ranks
    token_ids_ptr += request * depth * ranks
    out = request * budget
    price = tl.load(price_ptr + request)

    # The frontier: slot s holds one reachable node. A taken node's slot passes to its next
    # sibling, and the next unused slot to its first child. Nodes of equal probability are
    # ordered by their key: depth, rank, parent + 1, of 11, 10 and 10 bits.
    slot = tl.arange(0, BLOCK)
    NOTHING: tl.constexpr = 0x7FFFFFFF
    log_prob = tl.full((BLOCK,), float("-inf"), tl.float64)
    above = tl.zeros((BLOCK,), tl.float64)  # the parent's log-probability
    key = tl.full((BLOCK,), NOTHING, tl.int32)
    if depth * ranks > 0:
        log_prob = tl.where(slot == 0, tl.load(log_probs_ptr).to(tl.float64), log_prob)
        key = tl.where(slot == 0, 1 << 20, key)

    taken = 0
    searching = 1
    while (taken < budget) & (searching > 0):
        best = tl.max(log_prob, axis=0)
        code = tl.min(tl.where(log_prob == best, key, NOTHING), axis=0)
        if (code == NOTHING) | (best < price):
            searching = 0
        else:
            level = code >> 20
            rank = (code >> 10) & 1023
            chosen = key == code
            parent_log_prob = tl.sum(tl.where(chosen, above, 0.0), axis=0)
            at = (level - 1) * ranks + rank
            tl.store(tokens_ptr + out + taken, tl.load(token_ids_ptr + at))
            tl.store(parents_ptr + out + taken, (code & 1023) - 1)
            tl.store(depths_ptr + out + taken, level)
            tl.store(out_log_probs_ptr + out + taken, best.to(tl.float32))

            more = rank + 1 < ranks
            sibling = parent_log_prob + tl.load(log_probs_ptr + at + 1, mask=more, other=0.0).to(tl.float64)
            log_prob = tl.where(chosen, tl.where(more, sibling, float("-inf")), log_prob)
            key = tl.where(chosen, tl.where(more, code + 1024, NOTHING), key)
            taken += 1
            deeper = level < depth
            child = best + tl.load(log_probs_ptr + level * ranks, mask=deeper, other=0.0).to(tl.float64)
            fresh = (slot == taken) & deeper
            log_prob = tl.where(fresh, child, log_prob)
            above = tl.where(fresh, best, above)
            key = tl.where(fresh, ((level + 1) << 20) | taken, key)

    tl.store(counts_ptr + request, taken)
    rest = (slot >= taken) & (slot < budget)
    tl.store(tokens_ptr + out + slot, tl.zeros((BLOCK,), tl.int64), mask=rest)
    tl.store(parents_ptr + out + slot, tl.full((BLOCK,), -1, tl.int32), mask=rest)
    tl.store(depths_ptr + out + slot, tl.zeros((BLOCK,), tl.int32), mask=rest)
    tl.store(out_log_probs_ptr + out + slot, tl.full((BLOCK,), float("-inf"), tl.float32), mask=rest)

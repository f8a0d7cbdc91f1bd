"""Tree verification at temperature > 0: draw the target's token at every node, follow the drafts that hit.

A draft is accepted exactly when the target itself drew it, so the text follows the
target's filtered law whatever was drafted. The draw's noise is a function of (seed,
position, token id) alone, so a seeded text does not depend on the tree or the drafter.

Two launches: one draws, one walks. Floor: ``bs * n * V * itemsize`` bytes over the memory
bandwidth; the noise costs about 100 instructions for each id that the filter allows.
Any filter adds torch's sort of the rows in front. Not measured on a GPU.

Source: SGLang's seeded sampler, a Gumbel maximum with MurmurHash3 noise. SGLang keys it by
rank where a filter is on; here it is always keyed by the token id.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from whiflash_kernels.checks import require_unit_stride
from whiflash_kernels.tree_verify_greedy import AcceptedPath, walk_tree
from whiflash_kernels.tree_verify_sample_ref import check_sample, kept_counts, tree_verify_sample_ref

_BLOCK = 4096  # vocabulary ids of one program


def tree_verify_sample(
    candidates: torch.Tensor,
    logits: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    max_depth: int,
) -> AcceptedPath:
    """Draw a token at every node and walk each tree along the draws.

    The filters are those of SGLang's torch sampler: of the ids in order of falling logit
    (equal logits: lower id first), the first top_k; those before which the probabilities
    sum to at most top_p; those of at least min_p times the highest probability.

    Args:
        candidates: int64 [bs, n], the tokens of the nodes, the root's first.
        logits: float32, bfloat16 or float16 [bs * n, V] or [bs, n, V], without NaN, the last
            dimension contiguous; penalties and masks (-inf) already applied.
        next_token, next_sibling: int64 [bs, n], links as of ``tree_build``.
        temperatures: float32 [bs], above 0; a greedy request has top_k 1 instead.
        top_ks: int32 or int64 [bs], 0 or less for all; None: off for every request.
        top_ps, min_ps: float32 [bs]; None: off for every request. With all three off nothing is sorted.
        seeds: int64 [bs].
        positions: int64 [bs, n], each node's own position, which keys the draw of the token
            after it; its low 32 bits count.
        max_depth: drafts that one path may hold; a deeper path is cut there.

    Raises:
        ValueError: wrong shape, dtype, stride or device, no node, no vocabulary, or a negative max_depth.
    """
    arguments = (candidates, logits, next_token, next_sibling, temperatures, top_ks, top_ps, min_ps)
    if candidates.is_cuda:
        return tree_verify_sample_triton(*arguments, seeds, positions, max_depth)
    return AcceptedPath(*tree_verify_sample_ref(*arguments, seeds, positions, max_depth))


def tree_verify_sample_triton(
    candidates: torch.Tensor,
    logits: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    max_depth: int,
) -> AcceptedPath:
    """See :func:`tree_verify_sample`; draws with one program per node and block of ids."""
    arguments = (candidates, logits, next_token, next_sibling, temperatures, top_ks, top_ps, min_ps)
    logits = check_sample(*arguments, seeds, positions, max_depth)
    require_unit_stride("logits", logits)
    cut = _cut(logits, temperatures, top_ks, top_ps, min_ps)
    tokens, scores = _draw(logits, cut, temperatures.contiguous(), seeds.contiguous(), positions)
    return walk_tree(candidates, tokens, scores, next_token, next_sibling, max_depth)


class _Cut(NamedTuple):
    """The last allowed id of each row, in order of falling logit and rising id."""

    logit: torch.Tensor  # float [bs, n], of the logits' dtype
    token: torch.Tensor  # int64 [bs, n]


def _cut(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
) -> _Cut | None:
    """Where the filters cut logits [bs, n, V]; None if there are none."""
    if top_ks is None and top_ps is None and min_ps is None:
        return None
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    last = kept_counts(ordered, temperatures, top_ks, top_ps, min_ps).unsqueeze(-1) - 1
    return _Cut(ordered.gather(-1, last).squeeze(-1), ids.gather(-1, last).squeeze(-1))


def _draw(
    logits: torch.Tensor,
    cut: _Cut | None,
    temperatures: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best token of every block of ids, int64 [bs, n, blocks], and its score, float32."""
    bs, n, vocabulary = logits.shape
    block = min(_BLOCK, triton.next_power_of_2(vocabulary))
    blocks = triton.cdiv(vocabulary, block)
    tokens = torch.empty(bs, n, blocks, dtype=torch.int64, device=logits.device)
    scores = torch.empty(bs, n, blocks, dtype=torch.float32, device=logits.device)
    if bs == 0:
        return tokens, scores
    _draw_kernel[(bs * n, blocks)](
        logits,
        *((logits, tokens) if cut is None else cut),  # unread when there is no cut
        temperatures,
        seeds,
        positions,
        tokens,
        scores,
        n,
        vocabulary,
        logits.stride(0),
        logits.stride(1),
        *positions.stride(),
        FILTERED=cut is not None,
        BLOCK=block,
        num_warps=8 if block == _BLOCK else 4,
    )
    return tokens, scores


@triton.jit
def _mix(state, key):
    """MurmurHash3's step for one 32-bit key."""
    key = key * 0xCC9E2D51
    key = ((key << 15) | (key >> 17)) * 0x1B873593
    state = state ^ key
    state = (state << 13) | (state >> 19)
    return state * 5 + 0xE6546B64


@triton.jit
def _hash(seed, position, token):
    """MurmurHash3 of the 16 bytes of two scalars and a token, int64, int64 and uint32."""
    state = _mix(tl.full((), 0, tl.uint32), seed.to(tl.uint32))
    state = _mix(state, (seed >> 32).to(tl.uint32))
    state = _mix(state, position.to(tl.uint32))
    state = _mix(state, token) ^ 16
    state = (state ^ (state >> 16)) * 0x85EBCA6B
    state = (state ^ (state >> 13)) * 0xC2B2AE35
    return state ^ (state >> 16)


@triton.jit
def _gumbel(hashed):
    """-log(-log(hashed / (2^32 - 1))), to float32's accuracy also where the quotient is next to 1."""
    upper = hashed >= 0x80000000
    rest = (0xFFFFFFFF - hashed).to(tl.float32) * 2.3283064365386963e-10  # 1 - quotient
    quotient = tl.where(upper, 1.0 - rest, hashed.to(tl.float32) * 2.3283064365386963e-10)
    gap = 1.0 - quotient
    # log(1 - rest) = log(quotient) * rest / gap corrects the rounding of 1 - rest.
    correction = tl.where(upper & (gap > 0.0), rest / tl.where(gap > 0.0, gap, 1.0), 1.0)
    exponential = tl.where(gap > 0.0, -tl.log(quotient) * correction, rest)
    exponential = tl.maximum(exponential, 2.3283064365386963e-10)
    return tl.where(hashed == 0, -709.0, -tl.log(exponential))


@triton.jit
def _draw_kernel(
    logits_ptr,
    cut_logit_ptr,
    cut_token_ptr,
    temperatures_ptr,
    seeds_ptr,
    positions_ptr,
    tokens_ptr,
    scores_ptr,
    n,
    vocabulary,
    logits_request,
    logits_node,
    position_request,
    position_node,
    FILTERED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    request = row // n
    node = row % n
    first = tl.program_id(1) * BLOCK
    token = first + tl.arange(0, BLOCK)
    logits_ptr += request * logits_request + node * logits_node
    logit = tl.load(logits_ptr + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    allowed = logit > float("-inf")
    if FILTERED:
        cut = tl.load(cut_logit_ptr + row).to(tl.float32)
        allowed = allowed & ((logit > cut) | ((logit == cut) & (token <= tl.load(cut_token_ptr + row))))

    best = 0
    score = float("-inf")
    if tl.max(allowed.to(tl.int32), axis=0) > 0:  # most blocks hold no allowed id once a filter is on
        position = tl.load(positions_ptr + request * position_request + node * position_node)
        noise = _gumbel(_hash(tl.load(seeds_ptr + request), position, token.to(tl.uint32)))
        noisy = tl.where(allowed, logit / tl.load(temperatures_ptr + request) + noise, float("-inf"))
        score, best = tl.max(noisy, axis=0, return_indices=True)
    out = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(scores_ptr + out, score)
    tl.store(tokens_ptr + out, (first + best).to(tl.int64))

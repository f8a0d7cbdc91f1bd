"""Greedy tree verification: the drafted path that agrees with the target's argmax, in one launch.

Floor: one launch; at most ``bs * (4 * n * 8 + 4 * (max_depth + 1))`` bytes move, 2 kB a
request at n = 61. Not measured on a GPU.

Source: the semantics of SGLang's ``verify_tree_greedy``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from whiflash_kernels.tree_verify_greedy_ref import check_greedy, tree_verify_greedy_ref


class AcceptedPath(NamedTuple):
    """What each of ``bs`` requests accepted.

    accept_index: int32 [bs, max_depth + 1], global nodes ``b * n + i`` from the root on, then -1.
    accept_lens: int32 [bs], nodes on the path, the root included: 1 when no draft was accepted.
    bonus: int64 [bs], the target's token after the last accepted node.
    """

    accept_index: torch.Tensor
    accept_lens: torch.Tensor
    bonus: torch.Tensor


def tree_verify_greedy(
    candidates: torch.Tensor,
    target_argmax: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    max_depth: int,
) -> AcceptedPath:
    """Walk each tree from its root, always to the first child that holds the target's argmax.

    Args:
        candidates: int64 [bs, n], the tokens of the nodes, the root's first.
        target_argmax: int64 [bs, n], the target's most probable token after each node.
        next_token, next_sibling: int64 [bs, n], links as of ``tree_build``.
        max_depth: drafts that one path may hold; a deeper path is cut there.

    All tensors may have any strides. Links are trusted: they lead to nodes of the same tree.

    Raises:
        ValueError: wrong shape, dtype or device, no node, or a negative max_depth.
    """
    arguments = (candidates, target_argmax, next_token, next_sibling, max_depth)
    if candidates.is_cuda:
        return tree_verify_greedy_triton(*arguments)
    return AcceptedPath(*tree_verify_greedy_ref(*arguments))


def tree_verify_greedy_triton(
    candidates: torch.Tensor,
    target_argmax: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    max_depth: int,
) -> AcceptedPath:
    """See :func:`tree_verify_greedy`; one program per request."""
    check_greedy(candidates, target_argmax, next_token, next_sibling, max_depth)
    tokens = target_argmax.unsqueeze(-1)
    return walk_tree(candidates, tokens, None, next_token, next_sibling, max_depth)


def walk_tree(
    candidates: torch.Tensor,
    tokens: torch.Tensor,
    scores: torch.Tensor | None,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    max_depth: int,
) -> AcceptedPath:
    """Walk along each node's best-scored token; arguments are already checked.

    Args:
        tokens: int64 [bs, n, choices]. With scores, float32 [bs, n, choices] of the same
            strides, a node's token is that of the highest score, the first among equals.
        The others: as of :func:`tree_verify_greedy`.
    """
    bs, n = candidates.shape
    path = AcceptedPath(
        torch.empty(bs, max_depth + 1, dtype=torch.int32, device=candidates.device),
        torch.empty(bs, dtype=torch.int32, device=candidates.device),
        torch.empty(bs, dtype=torch.int64, device=candidates.device),
    )
    if bs == 0:
        return path
    choices = tokens.shape[2]
    _walk_kernel[(bs,)](
        candidates,
        tokens,
        tokens if scores is None else scores,
        next_token,
        next_sibling,
        *path,
        n,
        max_depth,
        choices,
        *candidates.stride(),
        *tokens.stride(),
        *next_token.stride(),
        *next_sibling.stride(),
        CHOICES=triton.next_power_of_2(choices) if scores is not None else 1,
        BLOCK_PATH=triton.next_power_of_2(max_depth + 1),
        num_warps=1,
    )
    return path


@triton.jit
def _token_of(node, tokens_ptr, scores_ptr, choices, stride_node, stride_choice, CHOICES: tl.constexpr):
    """The token that the target puts after a node."""
    if CHOICES == 1:
        return tl.load(tokens_ptr + node * stride_node)
    else:
        choice = tl.arange(0, CHOICES)
        at = node * stride_node + choice * stride_choice
        best = tl.argmax(tl.load(scores_ptr + at, mask=choice < choices, other=float("-inf")), axis=0)
        return tl.load(tokens_ptr + node * stride_node + best * stride_choice)


@triton.jit
def _walk_kernel(
    candidates_ptr,
    tokens_ptr,
    scores_ptr,
    next_token_ptr,
    next_sibling_ptr,
    accept_index_ptr,
    accept_lens_ptr,
    bonus_ptr,
    n,
    max_depth,
    choices,
    candidate_request,
    candidate_node,
    token_request,
    token_node,
    token_choice,
    child_request,
    child_node,
    sibling_request,
    sibling_node,
    CHOICES: tl.constexpr,
    BLOCK_PATH: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    candidates_ptr += request * candidate_request
    tokens_ptr += request * token_request
    scores_ptr += request * token_request
    next_token_ptr += request * child_request
    next_sibling_ptr += request * sibling_request
    accept_index_ptr += request * (max_depth + 1)

    root = (request * n).to(tl.int32)
    tl.store(accept_index_ptr, root)
    length = 1
    token = _token_of(request * 0, tokens_ptr, scores_ptr, choices, token_node, token_choice, CHOICES)
    child = tl.load(next_token_ptr)
    while (child >= 0) & (length <= max_depth):
        drafted = tl.load(candidates_ptr + child * candidate_node)
        if drafted == token:
            tl.store(accept_index_ptr + length, root + child.to(tl.int32))
            length += 1
            token = _token_of(child, tokens_ptr, scores_ptr, choices, token_node, token_choice, CHOICES)
            child = tl.load(next_token_ptr + child * child_node)
        else:
            child = tl.load(next_sibling_ptr + child * sibling_node)

    slot = tl.arange(0, BLOCK_PATH)
    unused = tl.full((BLOCK_PATH,), -1, tl.int32)
    tl.store(accept_index_ptr + slot, unused, mask=(slot >= length) & (slot <= max_depth))
    tl.store(accept_lens_ptr + request, length)
    tl.store(bonus_ptr + request, token)

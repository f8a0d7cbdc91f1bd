"""Attention mask, depths and SGLang's tree links of any draft tree, from its parents, in one launch.

Floor: one launch. Traffic is ``bs * n * (n + 4 * ceil(n / 32) + 4 * 8)`` bytes written and
``bs * (n - 1) * itemsize`` read, 6 kB a request at n = 61. Not measured on a GPU.

Source: the layouts of SGLang's ``build_tree_kernel_efficient``, which starts from EAGLE's
candidate lists; this op starts from parents, so it serves irregular trees and chains alike.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from whiflash_kernels.checks import INTEGERS, require_dtype, require_rank
from whiflash_kernels.tree_build_ref import tree_build_ref

_TILE = 4096  # mask cells of one program


class TreeLinks(NamedTuple):
    """Draft trees of ``bs`` requests, ``n`` nodes each with the root as node 0.

    mask: bool [bs, n, n], row i may see column j: j is i or an ancestor of i.
    packed_mask: int32 [bs, n, ceil(n / 32)], column j is bit ``j % 32`` of word ``j // 32``.
    depths: int64 [bs, n], 0 at the root; a node's position is the root's plus this.
    retrieve_index: int64 [bs, n], ``b * n + i``.
    next_token: int64 [bs, n], first child or -1; children are in node order.
    next_sibling: int64 [bs, n], the parent's next child or -1.
    """

    mask: torch.Tensor
    packed_mask: torch.Tensor
    depths: torch.Tensor
    retrieve_index: torch.Tensor
    next_token: torch.Tensor
    next_sibling: torch.Tensor


def tree_build(parents: torch.Tensor) -> TreeLinks:
    """Masks, depths and links of draft trees.

    Args:
        parents: int32 or int64 [bs, n - 1], any strides: the parent node of node i + 1,
            0 being the root. A parent comes before its children: ``parents[:, i] <= i``.
            On CUDA the values are not checked (that would wait for the device): a value
            outside [0, i] is read as the nearest one inside.

    Raises:
        ValueError: wrong dtype or rank; on the CPU also a parent outside [0, i].
    """
    return tree_build_triton(parents) if parents.is_cuda else TreeLinks(*tree_build_ref(parents))


def tree_build_triton(parents: torch.Tensor) -> TreeLinks:
    """See :func:`tree_build`; one program per request and block of rows."""
    require_rank("parents", parents, 2)
    require_dtype("parents", parents, INTEGERS)
    bs, n = parents.shape[0], parents.shape[1] + 1
    links = _empty_links(bs, n, parents.device)
    if bs == 0:
        return links
    block_n = max(32, triton.next_power_of_2(n))
    rows = max(1, min(16, _TILE // block_n))
    _tree_build_kernel[(bs, triton.cdiv(n, rows))](
        parents,
        *links,
        n,
        links.packed_mask.shape[2],
        parents.stride(0),
        parents.stride(1),
        BLOCK_N=block_n,
        ROWS=rows,
    )
    return links


def _empty_links(bs: int, n: int, device: torch.device) -> TreeLinks:
    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return TreeLinks(
        empty(bs, n, n, dtype=torch.bool),
        empty(bs, n, -(-n // 32), dtype=torch.int32),
        *(empty(bs, n) for _ in range(4)),
    )


@triton.jit
def _tree_build_kernel(
    parents_ptr,
    mask_ptr,
    packed_ptr,
    depths_ptr,
    index_ptr,
    child_ptr,
    sibling_ptr,
    n,
    words,
    stride_request,
    stride_node,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    node = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    other = tl.arange(0, BLOCK_N)
    parents_ptr += request * stride_request - stride_node  # so that node i is at offset i * stride_node

    seen = other[None, :] == node[:, None]
    depth = tl.zeros((ROWS,), tl.int32)
    at = tl.where(node < n, node, 0)
    while tl.max(at, 0) > 0:
        parent = tl.load(parents_ptr + at.to(tl.int64) * stride_node, mask=at > 0, other=0).to(tl.int32)
        depth += tl.where(at > 0, 1, 0)
        at = tl.maximum(tl.minimum(parent, at - 1), 0)  # falls at every step: no input can loop
        seen = seen | (other[None, :] == at[:, None])

    first = request * n + node
    own = node < n
    cells = own[:, None] & (other < n)[None, :]
    tl.store(mask_ptr + first[:, None] * n + other[None, :], seen, mask=cells)
    bits = tl.reshape(seen.to(tl.int32), (ROWS, BLOCK_N // 32, 32)) << tl.arange(0, 32)[None, None, :]
    word = tl.arange(0, BLOCK_N // 32)
    packed = tl.sum(bits, axis=2)
    tl.store(
        packed_ptr + first[:, None] * words + word[None, :], packed, own[:, None] & (word < words)[None, :]
    )
    tl.store(depths_ptr + first, depth.to(tl.int64), mask=own)
    tl.store(index_ptr + first, first, mask=own)

    drafted = (other > 0) & (other < n)
    parent_of = tl.load(parents_ptr + other.to(tl.int64) * stride_node, mask=drafted, other=0).to(tl.int32)
    parent_of = tl.where(drafted, tl.maximum(tl.minimum(parent_of, other - 1), 0), -1)
    own_drafted = own & (node > 0)
    own_parent = tl.load(parents_ptr + node.to(tl.int64) * stride_node, mask=own_drafted, other=0).to(
        tl.int32
    )
    own_parent = tl.where(own_drafted, tl.maximum(tl.minimum(own_parent, node - 1), 0), -2)
    is_child = parent_of[None, :] == node[:, None]
    is_younger = (parent_of[None, :] == own_parent[:, None]) & (other[None, :] > node[:, None])
    child = tl.min(tl.where(is_child, other[None, :], BLOCK_N), axis=1)
    sibling = tl.min(tl.where(is_younger, other[None, :], BLOCK_N), axis=1)
    tl.store(child_ptr + first, tl.where(child < BLOCK_N, child, -1).to(tl.int64), mask=own)
    tl.store(sibling_ptr + first, tl.where(sibling < BLOCK_N, sibling, -1).to(tl.int64), mask=own)

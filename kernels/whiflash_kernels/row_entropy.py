"""Entropy and top-1 probability of chosen logits rows, in one pass over the vocabulary.

Each program keeps, over its share of a row's columns, the maximum m, the sum
s of exp(x - m) and the sum u of exp(x - m) (x - m), and rescales the sums when m
grows. Then entropy = log s - u / s and the top-1 probability is 1 / s.

Source: the online softmax (Milakov and Gimelshein, 2018), with a second running sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from whiflash_kernels.checks import (
    FLOATS,
    require,
    require_dtype,
    require_rank,
    require_same_device,
    require_unit_stride,
)
from whiflash_kernels.row_entropy_ref import row_entropy_ref

_BLOCK = 4096
_PROGRAMS = 264  # enough for two on each multiprocessor of a Hopper GPU
_MOST_SPLITS = 64


def row_entropy(logits: torch.Tensor, rows: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy and largest probability of softmax(row).

    Floor: bytes over bandwidth, n * (V * itemsize + 8) bytes, plus 8 * n for ``rows``;
    at least one launch. Few rows are split over programs, which takes a second launch.
    Not measured on a GPU.

    Args:
        logits: [rows_total, V], float32, bfloat16 or float16, adjacent columns. Columns
            of -inf contribute nothing.
        rows: int64 [n], adjacent, or None for all rows.

    Returns:
        Entropies in nats, float32 [n], and top-1 probabilities, float32 [n]. Both are
        NaN for a row index outside the logits, and for a row that has NaN or +inf or
        has nothing but -inf.

    Raises:
        ValueError: another rank or dtype, no columns, or columns that are not adjacent.
    """
    run = row_entropy_triton if logits.is_cuda else row_entropy_ref
    return run(logits, rows)


def row_entropy_triton(
    logits: torch.Tensor, rows: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel behind :func:`row_entropy`."""
    _check(logits, rows)
    total, vocabulary = logits.shape
    n = total if rows is None else rows.shape[0]
    entropy = torch.empty(n, dtype=torch.float32, device=logits.device)
    top1 = torch.empty_like(entropy)
    if n == 0:
        return entropy, top1
    columns = _columns_per_program(n, vocabulary)
    splits = triton.cdiv(vocabulary, columns)
    shares = entropy if splits == 1 else entropy.new_empty((3, n, splits))
    _share_kernel[(n, splits)](
        logits,
        logits if rows is None else rows,
        shares,
        entropy,
        top1,
        total,
        vocabulary,
        logits.stride(0),
        columns,
        HAS_ROWS=rows is not None,
        WHOLE_ROW=splits == 1,
        BLOCK=min(_BLOCK, max(triton.next_power_of_2(vocabulary), 128)),
        num_warps=8,
    )
    if splits > 1:
        _merge_kernel[(n,)](shares, entropy, top1, splits, SPLITS=triton.next_power_of_2(splits), num_warps=1)
    return entropy, top1


def _columns_per_program(n: int, vocabulary: int) -> int:
    """A whole number of blocks: one row each where rows fill the GPU, else a share of a row."""
    blocks = triton.cdiv(vocabulary, _BLOCK)
    splits = min(_MOST_SPLITS, blocks, triton.cdiv(_PROGRAMS, n))
    return triton.cdiv(blocks, splits) * _BLOCK


def _check(logits: torch.Tensor, rows: torch.Tensor | None) -> None:
    require_rank("logits", logits, 2)
    require(logits.shape[1] > 0, f"logits: shape {tuple(logits.shape)}, expected at least one column")
    require_dtype("logits", logits, FLOATS)
    require_unit_stride("logits", logits)
    if rows is not None:
        require_rank("rows", rows, 1)
        require_dtype("rows", rows, (torch.int64,))
        require_unit_stride("rows", rows)
        require_same_device(logits=logits, rows=rows)


@triton.jit
def _share_kernel(
    logits_ptr,
    rows_ptr,
    share_ptr,
    entropy_ptr,
    top1_ptr,
    total,
    vocabulary,
    logits_stride,
    columns,
    HAS_ROWS: tl.constexpr,
    WHOLE_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(m, s, u) of one share of a row's columns, and the results where the share is the row."""
    i, split = tl.program_id(0), tl.program_id(1)
    row = tl.load(rows_ptr + i) if HAS_ROWS else i.to(tl.int64)
    known = (row >= 0) & (row < total)
    first = split * columns
    end = tl.minimum(vocabulary, first + columns)
    m, s, u = float("-inf"), 0.0, 0.0
    for start in range(first, end, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (column < end) & known
        x = tl.load(logits_ptr + row * logits_stride + column, mask=inside, other=float("-inf"))
        m, s, u = _absorb(m, s, u, x.to(tl.float32))
    if WHOLE_ROW:
        tl.store(entropy_ptr + i, tl.log(s) - u / s)
        tl.store(top1_ptr + i, 1.0 / tl.where(s > 0, s, float("nan")))
    else:
        n, splits = tl.num_programs(0).to(tl.int64), tl.num_programs(1)
        tl.store(share_ptr + i.to(tl.int64) * splits + split, m)
        tl.store(share_ptr + (n + i) * splits + split, s)
        tl.store(share_ptr + (2 * n + i) * splits + split, u)


@triton.jit
def _absorb(m, s, u, x):
    """Add a block of columns to (m, s, u)."""
    grown = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m == float("-inf"), 0.0, m - grown)
    scale = tl.exp(shift)
    d = tl.where(x == float("-inf"), 0.0, x - grown)
    p = tl.where(x == float("-inf"), 0.0, tl.exp(d))
    return grown, s * scale + tl.sum(p, axis=0), (u + s * shift) * scale + tl.sum(p * d, axis=0)


@triton.jit
def _merge_kernel(share_ptr, entropy_ptr, top1_ptr, splits, SPLITS: tl.constexpr):
    """Results of a row from the (m, s, u) of its shares."""
    i, n = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    split = tl.arange(0, SPLITS)
    inside = split < splits
    m = tl.load(share_ptr + i * splits + split, mask=inside, other=float("-inf"))
    s = tl.load(share_ptr + (n + i) * splits + split, mask=inside, other=0.0)
    u = tl.load(share_ptr + (2 * n + i) * splits + split, mask=inside, other=0.0)
    shift = tl.where(m == float("-inf"), 0.0, m - tl.max(m, axis=0))
    total = tl.sum(s * tl.exp(shift), axis=0)
    weighted = tl.sum((u + s * shift) * tl.exp(shift), axis=0)
    tl.store(entropy_ptr + i, tl.log(total) - weighted / total)
    tl.store(top1_ptr + i, 1.0 / tl.where(total > 0, total, float("nan")))

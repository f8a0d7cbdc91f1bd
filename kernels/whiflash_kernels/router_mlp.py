"""The neural router's scalar for every verify row, and its gather at the last accepted rows.

score = w2 GELU(w1 h + b1) + b2, with the exact (erf) GELU. The weights are read
once however many rows there are, so scoring all rows of a verify costs about as
much as scoring the accepted ones, and needs to know nothing of acceptance: the
call can sit inside the captured verify graph.

Source: the WhiFlash router model cards (two layers, GELU, one scalar).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from whiflash_kernels.checks import (
    FLOATS,
    INTEGERS,
    require,
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
    require_unit_stride,
)
from whiflash_kernels.router_mlp_ref import router_gather_ref, router_mlp_ref

_BLOCK_N = 32
_WIDTH_CHUNK = 512
_FEW_ROWS = 256  # up to here too few row blocks exist to fill a GPU, so the columns are split as well
_SPLITS = 4


def router_mlp(
    hidden: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> torch.Tensor:
    """The router's scalar of every row; products accumulate in float32.

    Floor: bytes over bandwidth, ((rows + W) * H * itemsize + 4 * rows) bytes, and
    at least one launch. This takes two launches: the columns of few rows are split
    over programs, which leave float32 [splits, rows, W] sums for the second one.
    Not measured on a GPU. Triton 3.8's interpreter cannot multiply blocks of
    bfloat16; compiled kernels can.

    Args:
        hidden: [rows, H], float32, bfloat16 or float16, adjacent columns.
        w1: [W, H], any of these dtypes, adjacent columns. Where it differs from
            ``hidden`` in dtype, or is float32, products are full float32.
        b1: [W]. w2: [1, W]. b2: [1]. Any of these dtypes.

    Returns:
        float32 [rows].

    Raises:
        ValueError: shapes that disagree, another dtype, or columns that are not adjacent.
    """
    run = router_mlp_triton if hidden.is_cuda else router_mlp_ref
    return run(hidden, w1, b1, w2, b2)


def router_gather(
    scores: torch.Tensor, accept_index: torch.Tensor, accept_lens: torch.Tensor
) -> torch.Tensor:
    """The score of each request's last accepted row.

    Floor: one launch.

    Args:
        scores: float32 [rows], contiguous.
        accept_index: int32 or int64 [bs, steps] of rows of ``scores``, -1 after the accepted ones.
        accept_lens: int32 or int64 [bs], accepted rows of each request.

    Returns:
        float32 [bs]; NaN where a request accepted nothing, or where its length or row is out of range.

    Raises:
        ValueError: shapes that disagree, another dtype, or strides the kernel cannot read.
    """
    run = router_gather_triton if scores.is_cuda else router_gather_ref
    return run(scores, accept_index, accept_lens)


def router_mlp_triton(
    hidden: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> torch.Tensor:
    """The kernel behind :func:`router_mlp`."""
    _check_mlp(hidden, w1, b1, w2, b2)
    (rows, in_size), width = hidden.shape, w1.shape[0]
    scores = torch.empty(rows, dtype=torch.float32, device=hidden.device)
    if rows == 0:
        return scores
    full_precision = hidden.dtype != w1.dtype or w1.dtype == torch.float32
    block_k, widest = (64, 32) if full_precision else (128, 64)  # keeps float32 operands in registers
    splits = _SPLITS if rows <= _FEW_ROWS else 1
    inner = torch.empty((splits, rows, width), dtype=torch.float32, device=hidden.device)
    block_m = max(16, min(widest, triton.next_power_of_2(rows)))
    _inner_kernel[(triton.cdiv(width, _BLOCK_N), triton.cdiv(rows, block_m), splits)](
        hidden,
        w1,
        inner,
        rows,
        in_size,
        width,
        hidden.stride(0),
        w1.stride(0),
        split_size=triton.cdiv(triton.cdiv(in_size, splits), block_k) * block_k,
        BLOCK_M=block_m,
        BLOCK_N=_BLOCK_N,
        BLOCK_K=block_k,
        FULL_PRECISION=full_precision,
    )
    _score_kernel[(rows,)](
        inner, b1, w2, b2, scores, rows, width, SPLITS=splits, BLOCK=_WIDTH_CHUNK, num_warps=4
    )
    return scores


def router_gather_triton(
    scores: torch.Tensor, accept_index: torch.Tensor, accept_lens: torch.Tensor
) -> torch.Tensor:
    """The kernel behind :func:`router_gather`."""
    _check_gather(scores, accept_index, accept_lens)
    bs, steps = accept_index.shape
    gathered = torch.empty(bs, dtype=torch.float32, device=scores.device)
    if bs > 0:
        block = 128
        _gather_kernel[(triton.cdiv(bs, block),)](
            scores,
            accept_index,
            accept_lens,
            gathered,
            scores.shape[0],
            bs,
            steps,
            accept_index.stride(0),
            accept_index.stride(1),
            accept_lens.stride(0),
            BLOCK=block,
        )
    return gathered


def _check_mlp(
    hidden: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> None:
    require_rank("hidden", hidden, 2)
    require_rank("w1", w1, 2)
    width, in_size = w1.shape
    require(width > 0 and in_size > 0, f"w1: shape {tuple(w1.shape)}, expected no empty dimension")
    require_shape("hidden", hidden, (hidden.shape[0], in_size))
    require_shape("b1", b1, (width,))
    require_shape("w2", w2, (1, width))
    require_shape("b2", b2, (1,))
    for name, tensor in {"hidden": hidden, "w1": w1, "b1": b1, "w2": w2, "b2": b2}.items():
        require_dtype(name, tensor, FLOATS)
        require_unit_stride(name, tensor)
    require_same_device(hidden=hidden, w1=w1, b1=b1, w2=w2, b2=b2)


def _check_gather(scores: torch.Tensor, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> None:
    require_rank("scores", scores, 1)
    require_rank("accept_index", accept_index, 2)
    require_shape("accept_lens", accept_lens, (accept_index.shape[0],))
    require_dtype("scores", scores, (torch.float32,))
    require_dtype("accept_index", accept_index, INTEGERS)
    require_dtype("accept_lens", accept_lens, INTEGERS)
    require_unit_stride("scores", scores)
    require_same_device(scores=scores, accept_index=accept_index, accept_lens=accept_lens)


@triton.jit
def _inner_kernel(
    hidden_ptr,
    w1_ptr,
    inner_ptr,
    rows,
    in_size,
    width,
    hidden_stride,
    w1_stride,
    split_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FULL_PRECISION: tl.constexpr,
):
    """inner[split, row, n] = hidden[row] . w1[n] over the split's columns."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(2)
    end = tl.minimum(in_size, (split + 1) * split_size)
    hidden_row = hidden_ptr + m.to(tl.int64)[:, None] * hidden_stride
    w1_row = w1_ptr + n.to(tl.int64)[None, :] * w1_stride
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(split * split_size, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        h = tl.load(hidden_row + k[None, :], mask=(m < rows)[:, None] & (k < end)[None, :], other=0.0)
        w = tl.load(w1_row + k[:, None], mask=(n < width)[None, :] & (k < end)[:, None], other=0.0)
        if FULL_PRECISION:
            total = tl.dot(h.to(tl.float32), w.to(tl.float32), total, input_precision="ieee")
        else:
            total = tl.dot(h, w, total)
    at = (split.to(tl.int64) * rows + m[:, None]) * width + n[None, :]
    tl.store(inner_ptr + at, total, mask=(m < rows)[:, None] & (n < width)[None, :])


@triton.jit
def _score_kernel(
    inner_ptr,
    b1_ptr,
    w2_ptr,
    b2_ptr,
    score_ptr,
    rows,
    width,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """score[row] = w2 . GELU(sum of splits + b1) + b2."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, width, BLOCK):
        n = start + tl.arange(0, BLOCK)
        inside = n < width
        x = tl.load(b1_ptr + n, mask=inside, other=0.0).to(tl.float32)
        for split in tl.static_range(SPLITS):
            x += tl.load(inner_ptr + (split * rows + row) * width + n, mask=inside, other=0.0)
        gelu = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
        total += gelu * tl.load(w2_ptr + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(score_ptr + row, tl.sum(total, axis=0) + tl.load(b2_ptr).to(tl.float32))


@triton.jit
def _gather_kernel(
    score_ptr,
    index_ptr,
    len_ptr,
    out_ptr,
    rows,
    bs,
    steps,
    index_stride,
    index_step,
    len_stride,
    BLOCK: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    last = tl.load(len_ptr + b * len_stride, mask=b < bs, other=0).to(tl.int64) - 1
    known = (last >= 0) & (last < steps)
    at = tl.load(index_ptr + b * index_stride + last * index_step, mask=known, other=-1).to(tl.int64)
    known = known & (at >= 0) & (at < rows)
    tl.store(out_ptr + b, tl.load(score_ptr + at, mask=known, other=float("nan")), mask=b < bs)

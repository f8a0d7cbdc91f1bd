"""K and V of context rows after their projection: k-norm, RoPE and the paged write, in one launch.

A drafter that catches up needs the K and V of the rows it missed and nothing
else of its layers. The projection is one GEMM over the K and V rows of a layer's
fused weight (torch's); this takes its output to the KV pool. DFlash calls it once
a layer, EAGLE-3 (no k-norm) for its single layer.

Source: the ``write_context`` of ``whiflash_sglang.drafters.dflash`` and ``.eagle3``,
where norm, rotary embedding and pool write are separate calls. Between the steps
those round to the model's dtype; here K stays float32 until it is stored. Not
measured on a GPU.
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
    require_shape,
    require_unit_stride,
)
from whiflash_kernels.kv_only_ref import fused_norm_ref, kv_only_ref

_ELEMENTS = 1024  # of K a program holds: a few heads
_NORM_BLOCK = 4096


def kv_only(
    kv: torch.Tensor,
    k_norm_weight: torch.Tensor | None,
    eps: float,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
) -> None:
    """Write rope(k_norm(K)) and V to their slots, in place.

    Floor: bytes over bandwidth, n * (4 * heads * d * itemsize + 4 * rot_dim + 16) bytes
    (one dtype, a float32 cache); at least one launch.

    Args:
        kv: [n, 2 * heads * d], the K columns, then the V columns; adjacent columns.
            float32, bfloat16 or float16.
        k_norm_weight: [d], any of these dtypes: RMSNorm of every K head. None leaves it out.
        eps: added to the mean square under the root.
        cos_sin_cache: [max_positions, rot_dim], any of these dtypes: cosines, then sines.
            The first rot_dim <= d columns of a head turn, column i with i + rot_dim / 2 ("neox").
        positions: int64 [n].
        slots: int64 [n], distinct. A row with a slot outside the buffers or a position
            outside the cache is not written.
        k_buffer, v_buffer: [slots, heads, d], any of these dtypes, adjacent columns.

    Raises:
        ValueError: shapes that disagree, another rot_dim, or strides or dtypes it cannot read.
    """
    run = kv_only_triton if kv.is_cuda else kv_only_ref
    run(kv, k_norm_weight, eps, cos_sin_cache, positions, slots, k_buffer, v_buffer)


def fused_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of every row, x / sqrt(mean(x^2) + eps) * weight, in float32 with one rounding at the end.

    Floor: bytes over bandwidth, 2 * n * H * itemsize bytes; at least one launch.

    Args:
        x: [n, H], float32, bfloat16 or float16, adjacent columns.
        weight: [H], any of these dtypes.
        eps: added to the mean square under the root.

    Returns:
        [n, H] of x's dtype.

    Raises:
        ValueError: shapes that disagree, another dtype, or columns that are not adjacent.
    """
    run = fused_norm_triton if x.is_cuda else fused_norm_ref
    return run(x, weight, eps)


def kv_only_triton(
    kv: torch.Tensor,
    k_norm_weight: torch.Tensor | None,
    eps: float,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
) -> None:
    """The kernel behind :func:`kv_only`."""
    _check(kv, k_norm_weight, cos_sin_cache, positions, slots, k_buffer, v_buffer)
    n, (total, heads, d) = kv.shape[0], k_buffer.shape
    if n == 0:
        return
    block_d = triton.next_power_of_2(d)
    block_h = min(max(1, _ELEMENTS // block_d), triton.next_power_of_2(heads))
    _kv_kernel[(n, triton.cdiv(heads, block_h))](
        kv,
        kv if k_norm_weight is None else k_norm_weight,
        cos_sin_cache,
        positions,
        slots,
        k_buffer,
        v_buffer,
        eps,
        total,
        cos_sin_cache.shape[0],
        heads,
        kv.stride(0),
        cos_sin_cache.stride(0),
        *k_buffer.stride()[:2],
        *v_buffer.stride()[:2],
        HAS_NORM=k_norm_weight is not None,
        HALF=cos_sin_cache.shape[1] // 2,
        D=d,
        BLOCK_H=block_h,
        BLOCK_D=block_d,
    )


def fused_norm_triton(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The kernel behind :func:`fused_norm`."""
    require_rank("x", x, 2)
    n, size = x.shape
    require_shape("weight", weight, (size,))
    for name, tensor in {"x": x, "weight": weight}.items():
        require_dtype(name, tensor, FLOATS)
        require_unit_stride(name, tensor)
    require_same_device(x=x, weight=weight)
    normed = torch.empty((n, size), dtype=x.dtype, device=x.device)
    if n * size > 0:
        block = min(_NORM_BLOCK, triton.next_power_of_2(size))
        _norm_kernel[(n,)](x, weight, normed, eps, size, x.stride(0), BLOCK=block, num_warps=8)
    return normed


def _check(
    kv: torch.Tensor,
    k_norm_weight: torch.Tensor | None,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
) -> None:
    require_rank("kv", kv, 2)
    require_rank("k_buffer", k_buffer, 3)
    require_rank("cos_sin_cache", cos_sin_cache, 2)
    n, (_, heads, d), rot_dim = kv.shape[0], k_buffer.shape, cos_sin_cache.shape[1]
    require(heads * d > 0, f"k_buffer: shape {tuple(k_buffer.shape)}, expected heads and columns")
    turns = rot_dim % 2 == 0 and 0 < rot_dim <= d
    require(turns, f"cos_sin_cache: rot_dim {rot_dim}, expected an even number from 2 to {d}")
    require_shape("kv", kv, (n, 2 * heads * d))
    require_shape("v_buffer", v_buffer, tuple(k_buffer.shape))
    floats = {"kv": kv, "cos_sin_cache": cos_sin_cache, "k_buffer": k_buffer, "v_buffer": v_buffer}
    if k_norm_weight is not None:
        require_shape("k_norm_weight", k_norm_weight, (d,))
        floats["k_norm_weight"] = k_norm_weight
    for name, tensor in floats.items():
        require_dtype(name, tensor, FLOATS)
        require_unit_stride(name, tensor)
    for name, index in {"positions": positions, "slots": slots}.items():
        require_shape(name, index, (n,))
        require_dtype(name, index, (torch.int64,))
        require_unit_stride(name, index)
    require_same_device(**floats, positions=positions, slots=slots)


@triton.jit
def _kv_kernel(
    kv_ptr,
    weight_ptr,
    cos_sin_ptr,
    positions_ptr,
    slots_ptr,
    k_buffer,
    v_buffer,
    eps,
    total,
    max_positions,
    heads,
    kv_row,
    cos_sin_row,
    k_slot,
    k_head,
    v_slot,
    v_head,
    HAS_NORM: tl.constexpr,
    HALF: tl.constexpr,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """A few heads of one row."""
    i = tl.program_id(0).to(tl.int64)
    slot, position = tl.load(slots_ptr + i), tl.load(positions_ptr + i)
    if (slot >= 0) & (slot < total) & (position >= 0) & (position < max_positions):
        column = tl.arange(0, BLOCK_D)
        head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
        inside = (head < heads) & (column < D)[None, :]
        row = kv_ptr + i * kv_row + head * D
        v = tl.load(row + heads * D + column[None, :], mask=inside)
        tl.store(v_buffer + slot * v_slot + head * v_head + column[None, :], v, mask=inside)

        k = tl.load(row + column[None, :], mask=inside, other=0.0).to(tl.float32)
        turns = column < 2 * HALF
        partner = tl.where(column < HALF, column + HALF, column - HALF)
        x = tl.load(row + partner[None, :], mask=inside & turns[None, :], other=0.0).to(tl.float32)
        if HAS_NORM:
            root = tl.rsqrt(tl.sum(k * k, axis=1) / D + eps)[:, None]
            weight = tl.load(weight_ptr + column, mask=column < D, other=0.0).to(tl.float32)
            k = k * root * weight[None, :]
            weight = tl.load(weight_ptr + partner, mask=turns, other=0.0).to(tl.float32)
            x = x * root * weight[None, :]
        angle = cos_sin_ptr + position * cos_sin_row + tl.where(column < HALF, column, column - HALF)
        cos = tl.load(angle, mask=turns, other=1.0).to(tl.float32)
        sin = tl.load(angle + HALF, mask=turns, other=0.0).to(tl.float32)
        k = k * cos[None, :] + x * tl.where(column < HALF, -sin, sin)[None, :]
        tl.store(k_buffer + slot * k_slot + head * k_head + column[None, :], k, mask=inside)


@triton.jit
def _norm_kernel(x_ptr, weight_ptr, out_ptr, eps, size, x_row, BLOCK: tl.constexpr):
    """One row: its mean square, then its columns, which are in cache by then."""
    i = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i * x_row + column, mask=column < size, other=0.0).to(tl.float32)
        squares += x * x
    root = tl.rsqrt(tl.sum(squares, axis=0) / size + eps)
    for start in range(0, size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i * x_row + column, mask=column < size, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=column < size, other=0.0).to(tl.float32)
        tl.store(out_ptr + i * size + column, x * root * weight, mask=column < size)

"""Moves of accepted rows: into and out of the rows pending for the idle drafter, and between KV slots.

A request slot keeps its last ``bound`` committed rows, each at its position
modulo ``bound``, until the drafter that has not read them is chosen again.
Indices are checked on the device, where nothing can be raised: padding such as
-1 moves nothing. Values are moved bit by bit, so any dtype does. Not measured on a GPU.

Source: ``whiflash_sglang.catch_up.pending``; the KV move is what follows SGLang's
verify of a branching tree.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from whiflash_kernels.accept_gather_ref import kv_move_ref, pending_put_ref, pending_take_ref
from whiflash_kernels.checks import (
    INTEGERS,
    require,
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
    require_unit_stride,
)

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_BLOCK = 2048


def pending_put(
    features_buf: torch.Tensor,
    next_tokens_buf: torch.Tensor,
    positions_buf: torch.Tensor,
    slots: torch.Tensor,
    first: torch.Tensor,
    features: torch.Tensor,
    next_tokens: torch.Tensor,
    lens: torch.Tensor | None = None,
) -> None:
    """Append rows at positions ``first``, ``first + 1``, ... of each slot, in place.

    Floor: bytes over bandwidth, 2 * F * itemsize + 24 bytes for each row written
    (int64 tokens and positions); at least one launch.

    Args:
        features_buf: [slots, bound, F], adjacent columns.
        next_tokens_buf: int32 or int64 [slots, bound], adjacent columns.
        positions_buf: int32 or int64 [slots, bound], adjacent columns; takes each row's position.
        slots: int64 [n], each at most once: what two requests write to one slot is undefined.
            A request whose slot is outside the buffers writes nothing.
        first: int64 [n], position of the first row; rows at negative positions are not written.
        features: [n, rows, F], of the buffer's dtype, adjacent columns; rows at most ``bound``.
        next_tokens: int32 or int64 [n, rows].
        lens: int32 or int64 [n]; rows at and past a request's length are not written. None writes all.

    Raises:
        ValueError: shapes that disagree, more rows than ``bound``, or strides or dtypes it cannot read.
    """
    run = pending_put_triton if features_buf.is_cuda else pending_put_ref
    run(features_buf, next_tokens_buf, positions_buf, slots, first, features, next_tokens, lens)


def pending_take(
    features_buf: torch.Tensor, next_tokens_buf: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and next tokens of chosen positions.

    It does not ask whether a row is still there (``positions_buf`` tells).
    Floor: bytes over bandwidth, n * (2 * F * itemsize + 32) bytes; at least one launch.

    Args:
        features_buf: [slots, bound, F], adjacent columns.
        next_tokens_buf: int32 or int64 [slots, bound], adjacent columns.
        slots: int64 [n]. positions: int64 [n].

    Returns:
        Features [n, F] and next tokens [n], of the buffers' dtypes; zeros and -1 for a
        slot outside the buffers or a negative position.

    Raises:
        ValueError: shapes that disagree, or strides or dtypes it cannot read.
    """
    run = pending_take_triton if features_buf.is_cuda else pending_take_ref
    return run(features_buf, next_tokens_buf, slots, positions)


def kv_move(buffer: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
    """buffer[target] = buffer[source], in place, with every read before any write.

    Sources and targets may overlap in any way: rows pass through a staging
    tensor. Targets must be distinct: which of two rows stays is undefined.
    Floor: bytes over bandwidth, 2 * n * heads * d * itemsize + 16 * n bytes, and at
    least one launch. The staging moves the rows twice, in two launches.

    Args:
        buffer: [slots, heads, d], heads and columns adjacent (rows may be strided).
        source: int64 [n]. target: int64 [n]. A pair with an index outside the buffer moves nothing.

    Raises:
        ValueError: shapes that disagree, or strides or dtypes it cannot read.
    """
    run = kv_move_triton if buffer.is_cuda else kv_move_ref
    run(buffer, source, target)


def pending_put_triton(
    features_buf: torch.Tensor,
    next_tokens_buf: torch.Tensor,
    positions_buf: torch.Tensor,
    slots: torch.Tensor,
    first: torch.Tensor,
    features: torch.Tensor,
    next_tokens: torch.Tensor,
    lens: torch.Tensor | None = None,
) -> None:
    """The kernel behind :func:`pending_put`."""
    _check_buffers(features_buf, next_tokens_buf, positions_buf)
    _check_rows(features_buf, slots, first, features, next_tokens, lens)
    (n, rows, size), block = features.shape, _block(features.shape[2])
    if n * rows == 0:
        return
    _put_kernel[(n * rows, max(1, triton.cdiv(size, block)))](
        _bits(features_buf),
        next_tokens_buf,
        positions_buf,
        slots,
        first,
        _bits(features),
        next_tokens,
        slots if lens is None else lens,
        *features_buf.shape,
        rows,
        *features_buf.stride()[:2],
        next_tokens_buf.stride(0),
        positions_buf.stride(0),
        *features.stride()[:2],
        *next_tokens.stride(),
        HAS_LENS=lens is not None,
        BLOCK=block,
    )


def pending_take_triton(
    features_buf: torch.Tensor, next_tokens_buf: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel behind :func:`pending_take`."""
    _check_buffers(features_buf, next_tokens_buf)
    _check_index(features_buf, slots=slots, positions=positions)
    n, size = slots.shape[0], features_buf.shape[2]
    features = features_buf.new_empty((n, size))
    next_tokens = next_tokens_buf.new_empty((n,))
    if n > 0:
        block = _block(size)
        _take_kernel[(n, max(1, triton.cdiv(size, block)))](
            _bits(features_buf),
            next_tokens_buf,
            slots,
            positions,
            _bits(features),
            next_tokens,
            *features_buf.shape,
            *features_buf.stride()[:2],
            next_tokens_buf.stride(0),
            BLOCK=block,
        )
    return features, next_tokens


def kv_move_triton(buffer: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
    """The kernels behind :func:`kv_move`."""
    require_rank("buffer", buffer, 3)
    slots, heads, d = buffer.shape
    adjacent = d <= 1 or buffer.stride(2) == 1
    adjacent &= heads <= 1 or buffer.stride(1) == d
    require(adjacent, f"buffer: strides {tuple(buffer.stride())}, expected {d} and 1 in the last dimensions")
    _check_index(buffer, source=source, target=target)
    n, size = source.shape[0], heads * d
    if n * size == 0:
        return
    rows, stride = _bits(buffer), buffer.stride(0)
    staging = torch.empty((n, size), dtype=rows.dtype, device=buffer.device)
    grid, block = (n, triton.cdiv(size, _block(size))), _block(size)
    _move_kernel[grid](rows, staging, source, target, slots, size, stride, LOAD=True, BLOCK=block)
    _move_kernel[grid](rows, staging, source, target, slots, size, stride, LOAD=False, BLOCK=block)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, which copy as they are."""
    return tensor.view(_BITS[tensor.element_size()])


def _block(size: int) -> int:
    return min(_BLOCK, max(128, triton.next_power_of_2(size)))


def _check_buffers(
    features_buf: torch.Tensor, next_tokens_buf: torch.Tensor, positions_buf: torch.Tensor | None = None
) -> None:
    require_rank("features_buf", features_buf, 3)
    shape = tuple(features_buf.shape)
    require(shape[1] > 0, f"features_buf: shape {shape}, expected a bound above 0")
    require_unit_stride("features_buf", features_buf)
    _check_copyable("features_buf", features_buf)
    for name, tensor in {"next_tokens_buf": next_tokens_buf, "positions_buf": positions_buf}.items():
        if tensor is not None:
            require_shape(name, tensor, shape[:2])
            require_dtype(name, tensor, INTEGERS)
            require_unit_stride(name, tensor)
            require_same_device(**{"features_buf": features_buf, name: tensor})


def _check_rows(
    features_buf: torch.Tensor,
    slots: torch.Tensor,
    first: torch.Tensor,
    features: torch.Tensor,
    next_tokens: torch.Tensor,
    lens: torch.Tensor | None,
) -> None:
    require_rank("features", features, 3)
    (n, rows, _), (_, bound, size) = features.shape, features_buf.shape
    require_shape("features", features, (n, rows, size))
    require(rows <= bound, f"features: {rows} rows a request, more than the bound {bound}")
    require_dtype("features", features, (features_buf.dtype,))
    require_unit_stride("features", features)
    require_shape("next_tokens", next_tokens, (n, rows))
    require_dtype("next_tokens", next_tokens, INTEGERS)
    require_shape("slots", slots, (n,))
    _check_index(features_buf, slots=slots, first=first)
    require_same_device(features_buf=features_buf, features=features, next_tokens=next_tokens)
    if lens is not None:
        require_shape("lens", lens, (n,))
        require_dtype("lens", lens, INTEGERS)
        require_unit_stride("lens", lens)
        require_same_device(features_buf=features_buf, lens=lens)


def _check_index(buffer: torch.Tensor, **indices: torch.Tensor) -> None:
    _check_copyable("buffer", buffer)
    length = next(iter(indices.values())).shape[:1]
    for name, index in indices.items():
        require_shape(name, index, tuple(length))
        require_dtype(name, index, (torch.int64,))
        require_unit_stride(name, index)
    require_same_device(buffer=buffer, **indices)


def _check_copyable(name: str, tensor: torch.Tensor) -> None:
    size = tensor.element_size()
    require(size in _BITS, f"{name}: {tensor.dtype} takes {size} bytes, expected one of {list(_BITS)}")


@triton.jit
def _put_kernel(
    features_buf,
    next_tokens_buf,
    positions_buf,
    slots_ptr,
    first_ptr,
    features_ptr,
    next_tokens_ptr,
    lens_ptr,
    slots,
    bound,
    size,
    rows,
    buf_slot,
    buf_row,
    next_tokens_slot,
    positions_slot,
    features_request,
    features_row,
    next_tokens_request,
    next_tokens_row,
    HAS_LENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, j = (tl.program_id(0) // rows).to(tl.int64), tl.program_id(0) % rows
    slot = tl.load(slots_ptr + b)
    position = tl.load(first_ptr + b) + j
    written = (slot >= 0) & (slot < slots) & (position >= 0)
    if HAS_LENS:
        written = written & (j < tl.load(lens_ptr + b))
    if written:
        at = position % bound
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        source = features_ptr + b * features_request + j.to(tl.int64) * features_row + column
        target = features_buf + slot * buf_slot + at * buf_row + column
        tl.store(target, tl.load(source, mask=column < size), mask=column < size)
        if tl.program_id(1) == 0:
            token = tl.load(next_tokens_ptr + b * next_tokens_request + j * next_tokens_row)
            tl.store(next_tokens_buf + slot * next_tokens_slot + at, token)
            tl.store(positions_buf + slot * positions_slot + at, position)


@triton.jit
def _take_kernel(
    features_buf,
    next_tokens_buf,
    slots_ptr,
    positions_ptr,
    features_ptr,
    next_tokens_ptr,
    slots,
    bound,
    size,
    buf_slot,
    buf_row,
    next_tokens_slot,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    slot, position = tl.load(slots_ptr + i), tl.load(positions_ptr + i)
    known = (slot >= 0) & (slot < slots) & (position >= 0)
    at = position % bound
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = features_buf + slot * buf_slot + at * buf_row + column
    row = tl.load(source, mask=(column < size) & known, other=0)
    tl.store(features_ptr + i * size + column, row, mask=column < size)
    if tl.program_id(1) == 0:
        token = tl.load(next_tokens_buf + slot * next_tokens_slot + at, mask=known, other=-1)
        tl.store(next_tokens_ptr + i, token)


@triton.jit
def _move_kernel(
    buffer_ptr,
    staging_ptr,
    source_ptr,
    target_ptr,
    slots,
    size,
    stride,
    LOAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """buffer[source[i]] -> staging[i], or staging[i] -> buffer[target[i]]."""
    i = tl.program_id(0).to(tl.int64)
    source, target = tl.load(source_ptr + i), tl.load(target_ptr + i)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    moved = (column < size) & (source >= 0) & (source < slots) & (target >= 0) & (target < slots)
    staged = staging_ptr + i * size + column
    if LOAD:
        tl.store(staged, tl.load(buffer_ptr + source * stride + column, mask=moved), mask=moved)
    else:
        tl.store(buffer_ptr + target * stride + column, tl.load(staged, mask=moved), mask=moved)

"""Pending rows and KV moves against their references, under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from whiflash_kernels.accept_gather import (
    kv_move,
    kv_move_triton,
    pending_put,
    pending_put_triton,
    pending_take,
    pending_take_triton,
)
from whiflash_kernels.accept_gather_ref import kv_move_ref, pending_put_ref, pending_take_ref

Buffers = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _buffers(
    slots: int, bound: int, size: int, dtype: torch.dtype = torch.float32, index=torch.int64
) -> Buffers:
    features = torch.full((slots, bound, size), float("nan")).to(dtype)
    return features, torch.full((slots, bound), -7, dtype=index), torch.full((slots, bound), -1, dtype=index)


def _rows(n: int, rows: int, size: int, slots: int, dtype: torch.dtype = torch.float32) -> tuple:
    chosen, first = torch.randperm(slots)[:n], torch.randint(0, 1000, (n,))
    return chosen, first, torch.randn(n, rows, size).to(dtype), torch.randint(0, 99, (n, rows))


def _assert_same(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def _put_both(buffers: Buffers, rows: tuple) -> Buffers:
    """Buffers after the kernel, once they have been compared with the reference's."""
    expected = tuple(buffer.clone() for buffer in buffers)
    pending_put_ref(*expected, *rows)
    pending_put_triton(*buffers, *rows)
    _assert_same(buffers, expected)
    return buffers


@pytest.mark.parametrize(
    ("n", "rows", "bound", "size"), [(1, 1, 1, 1), (3, 5, 7, 96), (17, 4, 64, 33), (2, 61, 61, 2100)]
)
def test_rows_land_at_their_position_modulo_the_bound(n, rows, bound, size):
    _put_both(_buffers(20, bound, size), _rows(n, rows, size, 20))


def test_put_wraps_around_and_writes_only_its_rows():
    features, tokens, positions = _put_both(
        _buffers(2, 4, 1), (torch.tensor([1]), torch.tensor([7]), torch.ones(1, 2, 1), torch.tensor([[5, 6]]))
    )
    assert features[1, :, 0].isnan().tolist() == [False, True, True, False]
    assert tokens.tolist() == [[-7] * 4, [6, -7, -7, 5]]
    assert positions.tolist() == [[-1] * 4, [8, -1, -1, 7]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_put_stops_at_each_length_including_zero(dtype):
    lens = torch.tensor([0, 3, 1, 9], dtype=dtype)
    _, _, positions = _put_both(_buffers(5, 8, 16), (*_rows(4, 3, 16, 5), lens))
    assert (positions >= 0).sum() == 0 + 3 + 1 + 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_put_and_take_move_every_dtype_bit_by_bit(dtype):
    features, tokens, positions = _buffers(4, 8, 40, dtype, torch.int32)
    rows = _rows(3, 2, 40, 4, dtype)
    pending_put_triton(features, tokens, positions, *rows)
    taken, next_tokens = pending_take_triton(features, tokens, rows[0], rows[1] + 1)
    assert taken.view(torch.int8).equal(rows[2][:, 1].view(torch.int8))
    assert next_tokens.dtype == torch.int32
    assert next_tokens.tolist() == rows[3][:, 1].tolist()


def test_padding_writes_nothing_and_takes_zeros():
    rows = (torch.tensor([-1, 4, 2]), torch.tensor([0, 0, -1]), torch.ones(3, 2, 8), torch.ones(3, 2).long())
    features, tokens, positions = _put_both(_buffers(4, 8, 8), rows)
    assert (positions >= 0).nonzero().tolist() == [[2, 0]]
    slots, at = torch.tensor([-1, 4, 2, 2]), torch.tensor([0, 0, -1, 0])
    taken = pending_take_triton(features, tokens, slots, at)
    _assert_same(taken, pending_take_ref(features, tokens, slots, at))
    assert taken[1].tolist() == [-1, -1, -1, 1]
    assert taken[0].sum(dim=1).tolist() == [0, 0, 0, 8]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (17, 130), (61, 2100)])
def test_take_equals_the_reference_and_repeats_rows_on_request(n, size):
    features, tokens, _ = _put_both(_buffers(6, 5, size), _rows(6, 5, size, 6))
    slots, positions = torch.randint(0, 6, (n,)), torch.randint(0, 999, (n,))
    _assert_same(
        pending_take_triton(features, tokens, slots, positions),
        pending_take_ref(features, tokens, slots, positions),
    )


def test_strided_buffers_and_rows_are_used_in_place():
    features, tokens, positions = _buffers(8, 12, 64)
    strided = features[::2, 1:8, 10:43], tokens[::2, 1:8], positions[::2, 1:8]
    slots, first, rows, next_tokens = _rows(3, 6, 70, 4)
    _put_both(strided, (slots, first, rows[:, ::2, 2:35], next_tokens[:, :3].T.contiguous().T))
    assert features[1::2].isnan().all()
    taken = pending_take_triton(*strided[:2], slots, first)
    _assert_same(taken, pending_take_ref(*strided[:2], slots, first))


def test_empty_puts_takes_and_moves_do_nothing():
    buffers, none = _buffers(2, 4, 8), torch.empty(0, dtype=torch.int64)
    _put_both(buffers, (none, none, torch.empty(0, 3, 8), torch.empty(0, 3, dtype=torch.int64)))
    one = torch.zeros(1, dtype=torch.int64)
    _put_both(buffers, (one, one, torch.empty(1, 0, 8), torch.empty(1, 0, dtype=torch.int64)))
    pending_put(*buffers, none, none, torch.empty(0, 3, 8), torch.empty(0, 3, dtype=torch.int64))
    for take in (pending_take_triton, pending_take_ref, pending_take):
        assert [tuple(t.shape) for t in take(*buffers[:2], none, none)] == [(0, 8), (0,)]
    for move in (kv_move_triton, kv_move_ref, kv_move):
        move(torch.zeros(4, 2, 8), none, none)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize(("heads", "d"), [(1, 1), (8, 128), (3, 1000)])
def test_a_move_reads_everything_before_it_writes(heads, d, dtype):
    buffer = torch.randn(70, heads, d).to(dtype)
    target = torch.randperm(70)[:61]
    source = target.roll(1)  # a cycle: every row read is also written
    expected = buffer.clone()
    expected.view(torch.int8)[target] = buffer.view(torch.int8)[source]
    kv_move_triton(buffer, source, target)
    assert buffer.view(torch.int8).equal(expected.view(torch.int8))


def test_a_move_skips_padding_and_may_read_one_row_twice():
    buffer = torch.arange(12.0).view(6, 1, 2)
    source, target = torch.tensor([5, 5, -1, 0, 6, 1]), torch.tensor([0, 1, 2, -1, 3, 6])
    expected = buffer.clone()
    kv_move_ref(expected, source, target)
    kv_move_triton(buffer, source, target)
    assert buffer.equal(expected)
    assert buffer[:, 0, 0].tolist() == [10, 10, 4, 6, 8, 10]


def test_a_move_works_on_one_layer_of_a_larger_buffer():
    layers = torch.randn(9, 3, 2, 5)
    expected = layers.clone()
    source, target = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 8])
    kv_move_ref(expected[:, 1], source, target)
    kv_move_triton(layers[:, 1], source, target)
    assert layers.equal(expected)


def test_bad_shapes_strides_and_dtypes_raise_with_the_numbers():
    buffers, one = _buffers(2, 4, 8), torch.zeros(1, dtype=torch.int64)
    tokens = torch.zeros(1, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match="5 rows a request, more than the bound 4"):
        pending_put_triton(*buffers, one, one, torch.zeros(1, 5, 8), tokens)
    with pytest.raises(ValueError, match=r"features: shape \(1, 3, 7\), expected \(1, 3, 8\)"):
        pending_put_triton(*buffers, one, one, torch.zeros(1, 3, 7), tokens[:, :3])
    with pytest.raises(ValueError, match=r"features: dtype torch.float16"):
        pending_put_triton(*buffers, one, one, torch.zeros(1, 3, 8).half(), tokens[:, :3])
    with pytest.raises(ValueError, match=r"lens: shape \(2,\), expected \(1,\)"):
        pending_put_triton(*buffers, one, one, torch.zeros(1, 3, 8), tokens[:, :3], tokens[0, :2])
    with pytest.raises(ValueError, match=r"positions: shape \(5,\), expected \(1,\)"):
        pending_take_triton(*buffers[:2], one, tokens[0])
    with pytest.raises(ValueError, match=r"features_buf: strides \(32, 1, 4\)"):
        pending_take_triton(torch.zeros(2, 8, 4).transpose(1, 2), buffers[1], one, one)
    with pytest.raises(ValueError, match=r"buffer: strides \(8, 1, 2\), expected 4 and 1"):
        kv_move_triton(torch.zeros(3, 4, 2).transpose(1, 2), one, one)
    with pytest.raises(ValueError, match=r"source: dtype torch.int32"):
        kv_move_triton(torch.zeros(3, 2, 4), one.int(), one)

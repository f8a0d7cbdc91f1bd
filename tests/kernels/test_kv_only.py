"""The K/V path after the projection against its reference, under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from whiflash_kernels.kv_only import fused_norm, fused_norm_triton, kv_only, kv_only_triton
from whiflash_kernels.kv_only_ref import fused_norm_ref, kv_only_ref

EPS = 1e-6
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
NAN = float("nan")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _cos_sin(positions: int, rot_dim: int) -> torch.Tensor:
    frequencies = 10000.0 ** -(torch.arange(0, rot_dim, 2) / rot_dim)
    angles = torch.arange(positions)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _buffers(slots: int, heads: int, d: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.full((slots, heads, d), NAN, dtype=dtype) for _ in "kv"]


def _inputs(n: int, heads: int, d: int, rot_dim: int, *, norm: bool = True) -> list:
    weight = torch.rand(d) + 0.5 if norm else None
    positions, slots = torch.randint(0, 100, (n,)), torch.randperm(n + 9)[:n]
    return [torch.randn(n, 2 * heads * d), weight, EPS, _cos_sin(100, rot_dim), positions, slots]


def _assert_equals_reference(inputs: list, buffers: list[torch.Tensor]) -> None:
    expected = [buffer.clone() for buffer in buffers]
    kv_only_ref(*inputs, *expected)
    kv_only_triton(*inputs, *buffers)
    tolerance = TOLERANCE[buffers[0].dtype]
    for got, reference in zip(buffers, expected, strict=True):
        torch.testing.assert_close(got, reference, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize(
    ("n", "heads", "d", "rot_dim"), [(1, 1, 2, 2), (3, 3, 64, 64), (17, 8, 128, 128), (5, 3, 80, 20)]
)
def test_k_and_v_equal_the_reference_with_whole_and_partial_rotation(n, heads, d, rot_dim, norm):
    _assert_equals_reference(_inputs(n, heads, d, rot_dim, norm=norm), _buffers(n + 9, heads, d))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_dtype_is_read_and_written(dtype):
    inputs = _inputs(3, 2, 16, 16)
    for i in (0, 1, 3):
        inputs[i] = inputs[i].to(dtype)
    _assert_equals_reference(inputs, _buffers(12, 2, 16, dtype))
    _assert_equals_reference(inputs, _buffers(12, 2, 16, torch.float32))


def test_a_rotation_by_a_quarter_turn_swaps_the_halves():
    cos_sin = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    zero = torch.zeros(1, dtype=torch.int64)
    k, v = _buffers(1, 1, 5)
    kv_only_triton(torch.arange(1.0, 11.0)[None], None, EPS, cos_sin, zero, zero, k, v)
    assert k.flatten().tolist() == [-3, -4, 1, 2, 5]
    assert v.flatten().tolist() == [6, 7, 8, 9, 10]


def test_only_the_given_slots_are_written_and_padding_is_not():
    inputs = _inputs(5, 2, 8, 8)
    inputs[4] = torch.tensor([0, 1, 100, -1, 99])
    inputs[5] = torch.tensor([-1, 6, 2, 3, 4])
    k, v = _buffers(6, 2, 8)
    _assert_equals_reference(inputs, [k, v])
    for buffer in (k, v):
        assert (~buffer.isnan()).all(dim=(1, 2)).tolist() == [False] * 4 + [True, False]
        assert (~buffer.isnan()).any(dim=(1, 2)).sum() == 1


def test_strided_inputs_and_buffers_are_used_in_place():
    inputs = _inputs(4, 2, 8, 8)
    inputs[0] = torch.randn(8, 100)[::2, 30 : 30 + 32]  # K and V columns of a whole QKV output
    layers = torch.full((13, 2, 3, 10), NAN)
    _assert_equals_reference(inputs, [layers[:, :, 0, :8], layers[:, :, 2, 1:9]])
    assert layers[:, :, 1].isnan().all()


def test_no_rows_write_nothing():
    for run in (kv_only_triton, kv_only_ref, kv_only):
        buffers = _buffers(3, 2, 8)
        run(*_inputs(0, 2, 8, 8), *buffers)
        assert all(buffer.isnan().all() for buffer in buffers)


def test_bad_shapes_strides_and_dtypes_raise_with_the_numbers():
    inputs, buffers = _inputs(2, 2, 8, 8), _buffers(4, 2, 8)

    def with_input(i: int, value: torch.Tensor) -> list:
        return [*inputs[:i], value, *inputs[i + 1 :], *buffers]

    with pytest.raises(ValueError, match=r"kv: shape \(2, 33\), expected \(2, 32\)"):
        kv_only_triton(*with_input(0, torch.zeros(2, 33)))
    with pytest.raises(ValueError, match=r"kv: strides \(1, 2\)"):
        kv_only_triton(*with_input(0, torch.zeros(32, 2).T))
    with pytest.raises(ValueError, match=r"k_norm_weight: shape \(7,\), expected \(8,\)"):
        kv_only_triton(*with_input(1, torch.zeros(7)))
    with pytest.raises(ValueError, match="rot_dim 10, expected an even number from 2 to 8"):
        kv_only_triton(*with_input(3, torch.zeros(100, 10)))
    with pytest.raises(ValueError, match=r"slots: dtype torch.int32"):
        kv_only_triton(*with_input(5, inputs[5].int()))
    with pytest.raises(ValueError, match=r"v_buffer: shape \(4, 2, 9\), expected \(4, 2, 8\)"):
        kv_only_triton(*inputs, buffers[0], torch.zeros(4, 2, 9))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("n", "size"), [(1, 1), (17, 576), (3, 5000)])
def test_the_norm_equals_the_reference(n, size, dtype):
    x, weight = torch.randn(n, size).to(dtype), torch.randn(size).to(dtype)
    got, reference = fused_norm_triton(x, weight, EPS), fused_norm_ref(x, weight, EPS)
    assert got.dtype == dtype
    torch.testing.assert_close(got, reference, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_the_norm_takes_strided_and_empty_rows_and_refuses_bad_shapes():
    x, weight = torch.randn(6, 30)[::2, 4:20], torch.randn(16)
    torch.testing.assert_close(fused_norm_triton(x, weight, EPS), fused_norm_ref(x, weight, EPS))
    assert fused_norm_triton(x[:0], weight, EPS).shape == (0, 16)
    assert fused_norm(x[:0], weight, EPS).shape == (0, 16)
    with pytest.raises(ValueError, match=r"weight: shape \(15,\), expected \(16,\)"):
        fused_norm_triton(x, weight[:15], EPS)

"""The router's MLP and gather against their references, under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from whiflash_kernels.router_mlp import router_gather, router_gather_triton, router_mlp, router_mlp_triton
from whiflash_kernels.router_mlp_ref import router_gather_ref, router_mlp_ref

NAN = float("nan")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _weights(width: int, in_size: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    w1 = torch.randn(width, in_size) / in_size**0.5
    return tuple(t.to(dtype) for t in (w1, torch.randn(width), torch.randn(1, width), torch.randn(1)))


@pytest.mark.parametrize(
    ("rows", "in_size", "width"), [(1, 576, 64), (3, 7, 1), (17, 130, 512), (61, 1000, 33), (300, 64, 600)]
)
def test_scores_equal_the_reference_over_odd_shapes(rows, in_size, width):
    hidden, weights = torch.randn(rows, in_size), _weights(width, in_size)
    torch.testing.assert_close(
        router_mlp_triton(hidden, *weights), router_mlp_ref(hidden, *weights), rtol=1e-5, atol=2e-5
    )


@pytest.fixture
def _bfloat16_dots(monkeypatch):
    """Triton 3.8's interpreter multiplies the raw bits of bfloat16 blocks; this widens them first."""
    dot = InterpreterBuilder.create_dot

    def widened(block: TensorHandle) -> TensorHandle:
        if block.dtype.scalar != tl.bfloat16:
            return block
        return TensorHandle((block.data.astype("uint32") << 16).view("float32"), tl.float32)

    monkeypatch.setattr(
        InterpreterBuilder,
        "create_dot",
        lambda self, a, b, *rest: dot(self, widened(a), widened(b), *rest),
    )


@pytest.mark.usefixtures("_bfloat16_dots")
@pytest.mark.parametrize("hidden_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_of_every_pair_of_dtypes_accumulate_in_float32(hidden_dtype, weight_dtype):
    hidden, weights = torch.randn(5, 257).to(hidden_dtype), _weights(40, 257, weight_dtype)
    scores = router_mlp_triton(hidden, *weights)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, router_mlp_ref(hidden, *weights), rtol=1e-5, atol=2e-5)


def test_the_gelu_is_the_exact_one():
    hidden = torch.linspace(-6, 6, 49)[:, None]
    one, zero = torch.ones(1, 1), torch.zeros(1)
    scores = router_mlp_triton(hidden, one, zero, one, zero)
    torch.testing.assert_close(scores, torch.nn.functional.gelu(hidden[:, 0]), rtol=1e-5, atol=1e-6)


def test_strided_rows_are_read_in_place():
    wide, weights = torch.randn(10, 200), _weights(8, 64)
    hidden = wide[::3, 16:80]
    torch.testing.assert_close(
        router_mlp_triton(hidden, *weights), router_mlp_ref(hidden, *weights), rtol=1e-5, atol=2e-5
    )


def test_no_rows_give_no_scores():
    assert router_mlp_triton(torch.empty(0, 8), *_weights(4, 8)).shape == (0,)
    assert router_mlp(torch.empty(0, 8), *_weights(4, 8)).shape == (0,)


def test_bad_shapes_strides_and_dtypes_raise_with_the_numbers():
    weights = _weights(4, 8)
    with pytest.raises(ValueError, match=r"hidden: shape \(2, 9\), expected \(2, 8\)"):
        router_mlp_triton(torch.zeros(2, 9), *weights)
    with pytest.raises(ValueError, match=r"w2: shape \(4, 1\), expected \(1, 4\)"):
        router_mlp_triton(torch.zeros(2, 8), *weights[:2], weights[2].T, weights[3])
    with pytest.raises(ValueError, match=r"hidden: strides \(1, 2\)"):
        router_mlp_triton(torch.zeros(8, 2).T, *weights)
    with pytest.raises(ValueError, match=r"hidden: dtype torch.float64"):
        router_mlp_triton(torch.zeros(2, 8, dtype=torch.float64), *weights)


def _accepted(bs: int, steps: int, rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    lens = torch.randint(0, steps + 1, (bs,), dtype=dtype)
    index = torch.randint(0, rows, (bs, steps), dtype=dtype)
    return index.masked_fill(torch.arange(steps) >= lens[:, None], -1), lens


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("bs", [1, 3, 17, 130])
def test_the_gather_takes_the_last_accepted_row(bs, dtype):
    scores, (index, lens) = torch.randn(bs * 7), _accepted(bs, 7, bs * 7, dtype)
    gathered = router_gather_triton(scores, index, lens)
    expected = [scores[index[b, n - 1]].item() if n else NAN for b, n in enumerate(lens.tolist())]
    torch.testing.assert_close(gathered, torch.tensor(expected), rtol=0, atol=0, equal_nan=True)
    reference = router_gather_ref(scores, index, lens)
    torch.testing.assert_close(gathered, reference, rtol=0, atol=0, equal_nan=True)


def test_the_gather_gives_nan_where_nothing_was_accepted_or_an_index_is_out_of_range():
    scores = torch.tensor([1.0, 2.0])
    index = torch.tensor([[0, -1], [0, 1], [0, 2], [0, -1], [0, 1]])
    lens = torch.tensor([0, 2, 2, 2, 3])
    expected = torch.tensor([NAN, 2.0, NAN, NAN, NAN])
    for gather in (router_gather_triton, router_gather_ref, router_gather):
        torch.testing.assert_close(gather(scores, index, lens), expected, equal_nan=True)


def test_the_gather_reads_transposed_indices_and_empty_inputs():
    scores, (index, lens) = torch.randn(30), _accepted(5, 6, 30, torch.int64)
    gathered = router_gather_triton(scores, index.T.contiguous().T, lens.repeat_interleave(2)[::2])
    torch.testing.assert_close(gathered, router_gather_ref(scores, index, lens), equal_nan=True)
    for gather in (router_gather_triton, router_gather_ref):
        assert gather(scores, index[:0], lens[:0]).shape == (0,)
        assert gather(scores[:0], index, lens).isnan().all()


def test_the_gather_raises_with_the_numbers():
    with pytest.raises(ValueError, match=r"accept_lens: shape \(3,\), expected \(2,\)"):
        router_gather_triton(
            torch.zeros(4), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
        )
    with pytest.raises(ValueError, match=r"scores: strides \(2,\)"):
        router_gather_triton(
            torch.zeros(8)[::2], torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
        )

"""Linear layers of a CPU engine: F.linear's results, from weights that are laid out once."""

import pytest
import torch
from torch.nn import functional

from whiflash_sglang.cpu.linear import forget_layouts, linear

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 17, 64])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 7), (96, 64), (1000, 33)])
def test_products_are_those_of_f_linear(dtype, rows, n, k):
    x, weight, bias = values(rows, k, dtype=dtype), values(n, k, dtype=dtype, seed=1), values(n, dtype=dtype)
    expected = functional.linear(x.double(), weight.double(), bias.double())
    product = linear(x, weight, bias)
    assert product.dtype == dtype
    step = torch.finfo(dtype).eps * (k + 1)
    torch.testing.assert_close(product.double(), expected, rtol=step, atol=step)


def test_leading_dimensions_are_kept():
    x, weight = values(2, 3, 4), values(6, 4)
    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight))


def test_rows_of_a_strided_input_are_read_as_they_lie():
    x, weight = values(4, 16)[:, ::2], values(6, 8)
    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight))


def test_a_weight_is_laid_out_once():
    x, weight = values(3, 8), values(6, 8)
    first = linear(x, weight)
    weight.zero_()  # what only a second layout would see
    assert torch.equal(linear(x, weight), first)


def test_a_written_weight_counts_once_its_layout_is_forgotten():
    x, weight = values(3, 8), values(6, 8)
    linear(x, weight)
    weight.fill_(1.0)
    forget_layouts()
    torch.testing.assert_close(linear(x, weight), x.sum(1, keepdim=True).expand(3, 6))

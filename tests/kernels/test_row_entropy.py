"""Entropy and top-1 probability against their reference, under Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch

from whiflash_kernels.row_entropy import row_entropy, row_entropy_triton
from whiflash_kernels.row_entropy_ref import row_entropy_ref

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _assert_equals_reference(logits: torch.Tensor, rows: torch.Tensor | None = None) -> None:
    results, references = row_entropy_triton(logits, rows), row_entropy_ref(logits, rows)
    for result, reference in zip(results, references, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, reference, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("n", [1, 3, 17, 61])
@pytest.mark.parametrize("vocabulary", [1, 5, 1000])
def test_results_equal_the_reference(n, vocabulary):
    _assert_equals_reference(4 * torch.randn(n, vocabulary))


def test_a_row_is_split_over_programs_at_a_large_vocabulary():
    _assert_equals_reference(5 * torch.randn(2, 151936), torch.tensor([1]))


def test_a_program_walks_several_blocks_of_its_row_while_the_maximum_rises_or_falls():
    slope = torch.stack([torch.linspace(0, 20, 8200), torch.linspace(20, 0, 8200)])
    logits = 3 * torch.randn(2, 8200) + slope
    _assert_equals_reference(logits, torch.arange(264) % 2)  # so many rows are not split


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_is_read_and_summed_in_float32(dtype):
    _assert_equals_reference((3 * torch.randn(3, 5000)).to(dtype))


def test_a_shift_of_all_logits_changes_nothing():
    logits = torch.randn(2, 1000).round(decimals=1)
    shifted = row_entropy_triton(logits.double().add(4096).float())
    for result, reference in zip(shifted, row_entropy_ref(logits), strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-3, atol=1e-4)


def test_known_laws_have_their_entropy():
    logits = torch.full((2, 4096 + 32), -INF)
    logits[0, 4090:4106] = 7.0  # uniform over 16 columns across two blocks
    logits[1, 3] = -2.0
    entropy, top1 = row_entropy_triton(logits)
    torch.testing.assert_close(entropy, torch.tensor([math.log(16), 0.0]))
    torch.testing.assert_close(top1, torch.tensor([1 / 16, 1.0]))


def test_minus_infinity_contributes_nothing_wherever_it_stands():
    logits = torch.randn(3, 9000)
    logits[0, :4096] = -INF
    logits[1, 4096:8192] = -INF
    logits[2, ::2] = -INF
    _assert_equals_reference(logits)
    kept = logits[2, 1::2][None]
    torch.testing.assert_close(row_entropy_triton(logits)[0][2:], row_entropy_ref(kept)[0])


@pytest.mark.parametrize("vocabulary", [5, 5000])
def test_rows_without_a_law_are_nan(vocabulary):
    logits = torch.randn(4, vocabulary)
    logits[0] = -INF
    logits[1, 2], logits[2, 4] = NAN, INF
    for results in (row_entropy_triton(logits), row_entropy_ref(logits)):
        for result in results:
            assert result.isnan().tolist() == [True, True, True, False]


def test_rows_are_chosen_by_index_and_an_index_outside_gives_nan():
    logits, rows = torch.randn(4, 50), torch.tensor([3, 0, 3, -1, 4])
    _assert_equals_reference(logits, rows)
    assert row_entropy_triton(logits, rows)[0].isnan().tolist() == [False] * 3 + [True] * 2


def test_strided_and_empty_inputs():
    _assert_equals_reference(torch.randn(9, 300)[::2, 20:127])
    for entropy in (row_entropy_triton, row_entropy_ref, row_entropy):
        assert [len(result) for result in entropy(torch.empty(0, 5))] == [0, 0]
        assert [len(result) for result in entropy(torch.randn(3, 5), torch.empty(0, dtype=torch.int64))] == [
            0,
            0,
        ]
    _assert_equals_reference(torch.empty(0, 5), torch.tensor([0, 1]))


def test_bad_shapes_strides_and_dtypes_raise_with_the_numbers():
    with pytest.raises(ValueError, match=r"logits: shape \(3, 0\)"):
        row_entropy_triton(torch.empty(3, 0))
    with pytest.raises(ValueError, match=r"logits: strides \(1, 5\)"):
        row_entropy_triton(torch.zeros(5, 5).T)
    with pytest.raises(ValueError, match=r"rows: dtype torch.int32"):
        row_entropy_triton(torch.zeros(4, 5), torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"rows: shape \(1, 2\), expected 1 dimensions"):
        row_entropy_triton(torch.zeros(4, 5), torch.zeros(1, 2, dtype=torch.int64))

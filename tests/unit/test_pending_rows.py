"""Pending rows are kept at their position modulo the bound, per request slot."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whiflash_sglang.catch_up.pending import PendingRows, rows_kept

SLOTS, BOUND, SIZE = 3, 8, 2


def rows_at(slot, positions):
    """Rows that say where they belong."""
    features = torch.stack([torch.full_like(positions, slot), positions], dim=-1).float()
    return features, positions * 10 + slot


@given(steps=st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(1, 3)), min_size=1, max_size=40))
def test_the_last_rows_of_every_slot_come_back_as_they_were_put(steps):
    pending = PendingRows(SLOTS, BOUND, SIZE, torch.float32, "cpu")
    lengths = [0] * SLOTS
    for slot, count in steps:
        positions = torch.arange(lengths[slot], lengths[slot] + count)
        features, tokens = rows_at(slot, positions)
        pending.put(torch.tensor([slot]), torch.tensor([lengths[slot]]), features[None], tokens[None])
        lengths[slot] += count
    for slot, length in enumerate(lengths):
        kept = torch.arange(max(0, length - BOUND), length)
        owner = torch.full_like(kept, slot)
        features, tokens = pending.take(owner, kept)
        expected_features, expected_tokens = rows_at(slot, kept)
        assert torch.equal(features, expected_features)
        assert torch.equal(tokens, expected_tokens)
        assert pending.holds(owner, kept).all()


def test_a_row_that_was_overwritten_is_not_held():
    pending = PendingRows(1, 4, SIZE, torch.float32, "cpu")
    for start in (0, 3):
        features, tokens = rows_at(0, torch.arange(start, start + 3))
        pending.put(torch.tensor([0]), torch.tensor([start]), features[None], tokens[None])
    positions = torch.arange(6)
    assert pending.holds(torch.zeros(6, dtype=torch.int64), positions).tolist() == [False] * 2 + [True] * 4


@pytest.mark.parametrize(("widest", "kept"), [(4, 64), (16, 64), (33, 66)])
def test_at_least_two_rounds_fit(widest, kept):
    assert rows_kept(widest) == kept


def test_the_bytes_announced_are_the_bytes_allocated():
    pending = PendingRows(5, BOUND, 12, torch.bfloat16, "cpu")
    allocated = sum(t.nbytes for t in vars(pending).values() if isinstance(t, torch.Tensor))
    assert pending.size_bytes == allocated

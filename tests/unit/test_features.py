"""One capture serves both drafters: each gets its own layers, in its own order."""

from types import SimpleNamespace

import pytest
import torch

from whiflash_sglang.features import FeatureColumns, TargetTap, union_of

HIDDEN = 4


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([1, 14, 26], [1, 8, 15, 22, 27]),
        ([2, 5], [3, 7]),  # equal length, different layers
        ([9, 3, 3, 1], [1]),  # unsorted, with a duplicate
    ],
)
def test_each_drafter_reads_its_own_layers_in_its_own_order(mine, theirs):
    union = union_of(mine, theirs)
    assert union == sorted(set(mine) | set(theirs))
    by_layer = {layer: torch.full((2, HIDDEN), float(layer)) for layer in union}
    captured = torch.cat([by_layer[layer] for layer in union], dim=-1)
    for layers in (mine, theirs):
        picked = FeatureColumns(layers, union, HIDDEN)(captured)
        assert torch.equal(picked, torch.cat([by_layer[layer] for layer in layers], dim=-1))


def test_the_tap_keeps_entropy_in_nats_and_the_best_tokens_probability():
    class Processor(torch.nn.Module):
        def forward(self, logits):
            return SimpleNamespace(next_token_logits=logits)

    processor = Processor()
    tap = TargetTap(processor, hidden=None, entropy=torch.empty(3), top1=torch.empty(3))
    processor(torch.tensor([[0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0]]))
    rows = torch.tensor([0, 1])
    torch.testing.assert_close(tap.entropy(rows), torch.tensor([4.0, 1.0]).log(), atol=1e-5, rtol=0)
    torch.testing.assert_close(tap.top1(rows), torch.tensor([0.25, 1.0]))


def test_a_forward_larger_than_the_taps_buffer_says_both_sizes():
    class Processor(torch.nn.Module):
        def forward(self, input_ids, hidden_states):
            return None

    processor = Processor()
    tap = TargetTap(processor, hidden=torch.empty(3, HIDDEN), entropy=None)
    processor(None, torch.ones(2, HIDDEN))
    assert torch.equal(tap.hidden(torch.tensor([1])), torch.ones(1, HIDDEN))
    with pytest.raises(RuntimeError, match=r"5 rows.*holds 3"):
        processor(None, torch.ones(5, HIDDEN))

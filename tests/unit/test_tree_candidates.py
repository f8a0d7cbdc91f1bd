"""Any tree in EAGLE's bookkeeping comes out of SGLang's builder as the same tree."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from whiflash_sglang.cpu.ops import build_tree_kernel_efficient_cpu
from whiflash_sglang.drafters.tree import as_eagle_candidates

QLEN_ONLY = 1


@st.composite
def parent_lists(draw):
    """Parents of 1 to 20 nodes, -1 the root, each before its children."""
    n = draw(st.integers(1, 20))
    return [draw(st.integers(-1, i - 1)) for i in range(n)]


def depths_of(parents):
    depths = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


@given(parent_lists())
def test_a_tree_survives_the_bookkeeping(parents):
    depths, n = depths_of(parents), len(parents)
    expansions, candidates = as_eagle_candidates(parents, max(depths))
    width = n + 1
    mask = torch.zeros(width * width, dtype=torch.bool)
    positions = torch.zeros(width, dtype=torch.int64)
    index, first, sibling = (torch.full((1, width), -1) for _ in range(3))
    build_tree_kernel_efficient_cpu(
        torch.tensor([expansions]), torch.tensor([candidates]), torch.tensor([100]), mask, positions,
        index, first, sibling, n, max(depths), width, QLEN_ONLY,
    )  # fmt: skip
    assert positions.tolist() == [100] + [100 + d for d in depths]
    for node, parent in enumerate(parents, start=1):
        child = int(first[0, parent + 1])
        siblings = []
        while child != -1:
            siblings.append(child)
            child = int(sibling[0, child])
        assert node in siblings
        assert mask.view(width, width)[node].sum() == depths[node - 1] + 1


@given(parent_lists())
def test_every_node_is_another_candidate(parents):
    _, candidates = as_eagle_candidates(parents, max(depths_of(parents)))
    assert len(set(candidates)) == len(parents)

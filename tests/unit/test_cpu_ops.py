"""The CPU stand-ins of SGLang's ops do what the kernels of the same name do."""

import random

import pytest
import torch

from unit.trees import links, path_to, random_parents
from whiflash_sglang.cpu import ops
from whiflash_sglang.cpu.attention import attend

SIZES = [1, 2, 3, 5, 7, 8, 16, 17]


@pytest.mark.parametrize("nodes", SIZES)
def test_a_trees_mask_is_its_ancestors_and_itself(nodes):
    parents = random_parents(nodes, random.Random(nodes))
    mask, child, sibling = links(parents)
    for node in range(nodes):
        assert mask[node].nonzero().flatten().tolist() == sorted(path_to(node, parents))
        children, at = [], int(child[node])
        while at != -1:
            children.append(at)
            at = int(sibling[at])
        assert children == [i + 1 for i, parent in enumerate(parents) if parent == node]


@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_the_greedy_walk_accepts_the_longest_path_that_the_target_predicts(nodes, seed):
    coin = random.Random(100 * nodes + seed)
    bs, vocabulary = 3, 4
    parents = random_parents(nodes, coin)
    _, child, sibling = links(parents)
    drafted = torch.tensor([[coin.randrange(vocabulary) for _ in range(nodes)] for _ in range(bs)])
    predicted = torch.tensor([[coin.randrange(vocabulary) for _ in range(nodes)] for _ in range(bs)])
    width = max(len(path_to(node, parents)) for node in range(nodes))
    predicts = torch.zeros(bs * nodes, dtype=torch.int32)
    index = torch.full((bs, width), -1, dtype=torch.int32)
    count = torch.empty(bs, dtype=torch.int32)
    ops.verify_tree_greedy_cpu(
        predicts,
        index,
        count,
        drafted,
        retrive_index=torch.arange(bs * nodes).view(bs, nodes),
        retrive_next_token=child.repeat(bs, 1),
        retrive_next_sibling=sibling.repeat(bs, 1),
        target_predict=predicted,
    )
    for b in range(bs):
        node, expected = 0, [0]
        while True:
            match = [
                i + 1
                for i, parent in enumerate(parents)
                if parent == node and drafted[b, i + 1] == predicted[b, node]
            ]
            if not match:
                break
            node = match[0]
            expected.append(node)
        assert index[b, : len(expected)].tolist() == [b * nodes + node for node in expected]
        assert (index[b, len(expected) :] == -1).all()
        assert count[b] == len(expected) - 1
        assert predicts[index[b, : len(expected)].long()].tolist() == predicted[b, expected].tolist()


@pytest.mark.parametrize("topk", [1, 2, 3])
def test_the_tree_of_eagles_bookkeeping_has_the_right_parents_and_positions(topk):
    # Level 1 holds candidates 0..topk-1; then each expansion e of parent_list[e] adds topk candidates.
    parent_list = torch.tensor([[-1, *range(topk)]])
    chosen = sorted({*range(topk), topk + 1, 2 * topk - 1}) if topk > 1 else [0, 1]
    n = len(chosen) + 1
    mask = torch.ones(n * n, dtype=torch.bool)
    positions = torch.empty(n, dtype=torch.int64)
    index, child, sibling = (torch.full((1, n), -1) for _ in range(3))
    ops.build_tree_kernel_efficient_cpu(
        parent_list, torch.tensor([chosen]), torch.tensor([10]), mask, positions,
        index, child, sibling, topk, 2, n, 1,
    )  # fmt: skip
    depth = [0] + [1 if candidate < topk else 2 for candidate in chosen]
    assert positions.tolist() == [10 + d for d in depth]
    assert mask.view(n, n)[:, 0].all()
    assert mask.view(n, n).sum(dim=1).tolist() == [d + 1 for d in depth]


def test_a_mask_layout_other_than_qlen_is_refused():
    empty = torch.empty(0, dtype=torch.int64)
    with pytest.raises(NotImplementedError, match="tree_mask_mode=0"):
        ops.build_tree_kernel_efficient_cpu(empty, empty, empty, *[empty] * 5, 1, 1, 1, 0)


def test_kv_rows_move_at_once_even_where_sources_and_targets_overlap():
    rows = torch.arange(20, dtype=torch.float32).view(10, 2).clone()
    before = rows.clone()
    ops.copy_all_layer_kv_cache_cpu(
        torch.tensor([rows.data_ptr()], dtype=torch.uint64),
        torch.tensor([8]),
        torch.tensor([1, 2, 3]),
        torch.tensor([2, 3, 5]),
    )
    before[[1, 2, 3]] = before[[2, 3, 5]]
    assert torch.equal(rows, before)


def test_slots_are_packed_request_after_request():
    table = torch.arange(40).view(4, 10)
    out = torch.empty(5, dtype=torch.int64)
    ops.assign_extend_cache_locs_cpu(
        torch.tensor([3, 1]), table, torch.tensor([2, 0]), torch.tensor([5, 2]), out, 10
    )
    assert out.tolist() == [32, 33, 34, 10, 11]


def test_slots_are_written_back_to_each_requests_row():
    table = torch.zeros(3, 6, dtype=torch.int32)
    ops.assign_req_to_token_pool_cpu(
        torch.tensor([2, 0]), table, torch.tensor([1, 0]), torch.tensor([3, 2]), torch.tensor([7, 8, 9, 5]), 6
    )
    assert table.tolist() == [[9, 5, 0, 0, 0, 0], [0] * 6, [0, 7, 8, 0, 0, 0]]


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (4, 4), (8, 1)])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_attention_equals_the_definition(heads, kv_heads, rows):
    torch.manual_seed(heads * 100 + rows)
    n, dim = 23, 8
    q, k, v = torch.randn(rows, heads, dim), torch.randn(n, kv_heads, dim), torch.randn(n, kv_heads, dim)
    mask = torch.rand(rows, n) < 0.5
    mask[:, 0] = True
    group = heads // kv_heads
    scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, dim=1)) * 0.3
    scores = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    expected = torch.einsum("hqk,khd->qhd", scores, v.repeat_interleave(group, dim=1))
    torch.testing.assert_close(attend(q, k, v, mask, 0.3), expected, atol=1e-5, rtol=1e-5)

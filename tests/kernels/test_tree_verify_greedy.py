import pytest
import torch
from kernel_cases import assert_same, random_parents

from whiflash_kernels.tree_build import tree_build
from whiflash_kernels.tree_verify_greedy import tree_verify_greedy, tree_verify_greedy_triton
from whiflash_kernels.tree_verify_greedy_ref import tree_verify_greedy_ref
from whiflash_sglang.cpu.ops import verify_tree_greedy_cpu


def case(bs, n, vocabulary, seed=0):
    """Candidates, target tokens and links of random trees, often in agreement if the vocabulary is small."""
    torch.manual_seed(seed)
    links = tree_build(random_parents(bs, n, seed))
    candidates, target = torch.randint(vocabulary, (2, bs, n))
    return candidates, target, links.next_token, links.next_sibling


@pytest.mark.parametrize(
    ("bs", "n", "vocabulary"), [(1, 1, 5), (3, 7, 2), (17, 61, 5), (3, 64, 1), (1, 53, 151_936)]
)
def test_the_kernel_equals_the_reference_on_random_trees(bs, n, vocabulary):
    arguments = case(bs, n, vocabulary, seed=n)
    for max_depth in (n, 3):
        assert_same(
            tree_verify_greedy_triton(*arguments, max_depth), tree_verify_greedy_ref(*arguments, max_depth)
        )


def test_the_path_and_the_bonus_are_those_the_engine_accepts():
    bs, n, depth = 17, 23, 9
    candidates, target, child, sibling = case(bs, n, 3)
    predicts = torch.zeros(bs * n, dtype=torch.int32)
    index = torch.full((bs, depth + 1), -1, dtype=torch.int32)
    drafts = torch.empty(bs, dtype=torch.int32)
    nodes = torch.arange(bs * n).view(bs, n)
    verify_tree_greedy_cpu(predicts, index, drafts, candidates, nodes, child, sibling, target)
    bonus = predicts[index.gather(1, drafts[:, None].long()).squeeze(1).long()].long()
    assert drafts.max() > 2
    assert_same(
        tree_verify_greedy_triton(candidates, target, child, sibling, depth), (index, drafts + 1, bonus)
    )


def test_without_a_matching_draft_only_the_root_is_accepted():
    candidates, target, child, sibling = case(3, 5, 4)
    path = tree_verify_greedy_triton(candidates, target + 100, child, sibling, 4)
    assert path.accept_index.tolist() == [[5 * b, -1, -1, -1, -1] for b in range(3)]
    assert path.accept_lens.tolist() == [1, 1, 1]
    assert torch.equal(path.bonus, target[:, 0] + 100)


def test_a_path_is_cut_at_the_largest_depth():
    chain = tree_build(torch.arange(6)[None])
    tokens = torch.arange(7)[None]
    path = tree_verify_greedy_triton(tokens, tokens + 1, chain.next_token, chain.next_sibling, 2)
    assert path.accept_index.tolist() == [[0, 1, 2]]
    assert path.bonus.tolist() == [3]
    path = tree_verify_greedy_triton(tokens, tokens + 1, chain.next_token, chain.next_sibling, 0)
    assert (path.accept_index.tolist(), path.accept_lens.tolist(), path.bonus.tolist()) == ([[0]], [1], [1])


def test_every_input_may_have_any_strides():
    arguments = case(3, 11, 2)
    spread = [torch.stack([x.T, x.T + 7], dim=-1)[..., 0].T for x in arguments]
    assert not any(x.is_contiguous() for x in spread)
    assert_same(tree_verify_greedy_triton(*spread, 6), tree_verify_greedy_ref(*arguments, 6))


def test_no_request_gives_empty_outputs():
    empty = [torch.empty(0, 4, dtype=torch.int64)] * 4
    assert_same(tree_verify_greedy_triton(*empty, 3), tree_verify_greedy_ref(*empty, 3))


@pytest.mark.parametrize("verify", [tree_verify_greedy, tree_verify_greedy_triton])
def test_bad_arguments_are_refused_with_the_numbers(verify):
    candidates, target, child, sibling = case(2, 4, 3)
    with pytest.raises(ValueError, match=r"target_argmax: shape \(2, 3\), expected \(2, 4\)"):
        verify(candidates, target[:, :3], child, sibling, 3)
    with pytest.raises(ValueError, match=r"next_sibling: dtype torch.int32"):
        verify(candidates, target, child, sibling.int(), 3)
    with pytest.raises(ValueError, match="max_depth: -1"):
        verify(candidates, target, child, sibling, -1)
    with pytest.raises(ValueError, match=r"\(2, 0\) holds no root"):
        verify(*(x[:, :0] for x in (candidates, target, child, sibling)), 3)

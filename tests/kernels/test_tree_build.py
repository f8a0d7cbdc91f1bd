import pytest
import torch
from kernel_cases import assert_same, random_parents

from whiflash_kernels.tree_build import tree_build, tree_build_triton
from whiflash_kernels.tree_build_ref import tree_build_ref
from whiflash_sglang.cpu.ops import _write_tree


@pytest.mark.parametrize(("bs", "n"), [(1, 1), (17, 2), (3, 7), (1, 31), (3, 33), (1, 61), (3, 64), (1, 127)])
def test_the_kernel_equals_the_reference_on_random_trees(bs, n):
    parents = random_parents(bs, n, seed=n)
    assert_same(tree_build_triton(parents), tree_build_ref(parents))


def test_the_links_are_those_the_engine_builds():
    parents = random_parents(3, 19, seed=5)
    links = tree_build_triton(parents)
    for b, row in enumerate(parents.tolist()):
        mask, child, sibling = (
            torch.empty_like(x[b]) for x in (links.mask, links.next_token, links.next_sibling)
        )
        _write_tree(row, mask, child, sibling)
        assert_same((links.mask[b], links.next_token[b], links.next_sibling[b]), (mask, child, sibling))


def test_a_chain_and_a_star_have_their_obvious_links():
    chain = tree_build_triton(torch.tensor([[0, 1, 2]], dtype=torch.int32))
    assert chain.next_token.tolist() == [[1, 2, 3, -1]]
    assert chain.next_sibling.tolist() == [[-1] * 4]
    assert chain.depths.tolist() == [[0, 1, 2, 3]]
    assert chain.packed_mask.tolist() == [[[1], [3], [7], [15]]]
    star = tree_build_triton(torch.tensor([[0, 0, 0]], dtype=torch.int32))
    assert star.next_token.tolist() == [[1, -1, -1, -1]]
    assert star.next_sibling.tolist() == [[-1, 2, 3, -1]]


def test_bit_31_of_a_packed_word_is_column_31():
    packed = tree_build_triton(torch.arange(39)[None]).packed_mask
    columns = torch.from_numpy(packed.numpy().view("uint8"))
    bits = (columns[..., None] >> torch.arange(8)) & 1
    assert torch.equal(bits.flatten(2)[..., :40].bool(), torch.ones(40, 40).tril().bool()[None])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_parents_may_have_any_strides_and_either_integer_type(dtype):
    parents = random_parents(3, 13).to(dtype)
    spread = torch.full((12, 3, 2), 99, dtype=dtype)
    spread[:, :, 0] = parents.T
    assert_same(tree_build_triton(spread[:, :, 0].T), tree_build_ref(parents))


def test_no_request_gives_empty_links():
    assert_same(tree_build_triton(torch.empty(0, 5, dtype=torch.int64)), tree_build_ref(random_parents(0, 6)))


def test_the_kernel_ends_on_parents_that_are_no_tree():
    links = tree_build_triton(torch.tensor([[5, 2, -7, 9_000]]))
    assert_same(links, tree_build_ref(torch.tensor([[0, 1, 0, 3]])))


def test_bad_parents_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"\(4,\).*2 dimensions"):
        tree_build_triton(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="float32"):
        tree_build_triton(torch.zeros(1, 4))
    with pytest.raises(ValueError, match=r"\[7\]"):
        tree_build(torch.tensor([[0, 7]]))

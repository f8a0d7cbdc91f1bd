import itertools

import pytest
import torch
from kernel_cases import assert_same

from best_first import best_first
from whiflash_kernels.ddtree_build import best_first_triton, ddtree_build, ddtree_build_triton
from whiflash_kernels.ddtree_build_ref import ddtree_build_ref, log_price, top_log_probs

TIED = torch.tensor([0.0, -0.25, -0.5, -1.0, -1.5, -3.0])
NO_PRICE = torch.tensor([-torch.inf], dtype=torch.float64)


def tied_levels(depth, seed):
    """Log-probabilities float32 [depth, 6], falling along each row, with many equal sums."""
    coin = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(TIED), (depth, 6), generator=coin)
    return TIED[picks].sort(dim=-1, descending=True).values


def search(levels, budget, price=NO_PRICE):
    """The kernel on log-probabilities [depth, ranks], each rank being its own token."""
    ranks = torch.arange(levels.shape[1]).expand(1, *levels.shape)
    return best_first_triton(levels[None], ranks, budget, price)


@pytest.mark.parametrize("budget", [1, 2, 7, 16, 31, 60])
def test_the_search_equals_the_engines_in_every_node_ties_included(budget):
    for seed in range(4):
        levels = tied_levels(4, seed)
        tree = search(levels, budget)
        nodes = best_first(levels.tolist(), budget)
        assert tree.counts.item() == len(nodes)
        assert tree.parents[0].tolist() == [node.parent for node in nodes]
        assert tree.depths[0].tolist() == [node.depth for node in nodes]
        assert tree.tokens[0].tolist() == [node.rank for node in nodes]
        assert tree.log_probs[0].tolist() == [node.log_prob for node in nodes]


def test_sums_are_kept_in_double_precision_as_in_the_engines_search():
    coin = torch.Generator().manual_seed(0)
    steps = torch.randint(40, (3, 6), generator=coin).sort(dim=-1).values
    levels = torch.cat([-16 - steps[:1] * 2.0**-19, -steps[1:] * 2.0**-22])  # float32 would round their sums
    tree, nodes = search(levels, 60), best_first(levels.tolist(), 60)
    assert tree.parents[0].tolist() == [node.parent for node in nodes]
    assert tree.tokens[0].tolist() == [node.rank for node in nodes]


def ranked_prefixes(levels):
    """Every prefix (tuple of ranks), by (probability, depth, last rank, the parent's place)."""
    groups = {}
    for depth in range(1, len(levels) + 1):
        for ranks in itertools.product(range(len(levels[0])), repeat=depth):
            total = sum(levels[d][rank] for d, rank in enumerate(ranks))
            groups.setdefault((-total, depth, ranks[-1]), []).append(ranks)
    place = {(): -1}
    for group in sorted(groups):
        for ranks in sorted(groups[group], key=lambda ranks: place[ranks[:-1]]):
            place[ranks] = len(place) - 1
    return list(place)[1:]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_search_equals_a_ranking_of_all_prefixes_ties_included(seed):
    levels = tied_levels(4, seed)
    ranked = ranked_prefixes(levels.tolist())
    for budget in (1, 3, 29, 60):
        tree = search(levels, budget)
        assert [path(tree, i) for i in range(budget)] == ranked[:budget]


def path(tree, node):
    """Tokens from the root's child to a node of request 0."""
    above = tree.parents[0, node].item()
    return (() if above < 0 else path(tree, above)) + (tree.tokens[0, node].item(),)


@pytest.mark.parametrize(
    ("bs", "depth", "vocabulary", "budget", "dtype"),
    [
        (1, 15, 1000, 60, torch.float32),
        (3, 7, 5, 32, torch.bfloat16),
        (17, 3, 1000, 5, torch.float16),
        (1, 2, 151_936, 7, torch.bfloat16),
        (1, 15, 1000, 257, torch.float32),
    ],
)
def test_the_kernel_equals_the_reference(bs, depth, vocabulary, budget, dtype):
    torch.manual_seed(budget)
    logits = (3 * torch.randn(bs, depth, vocabulary)).to(dtype)
    assert_same(ddtree_build_triton(logits, budget), ddtree_build_ref(logits, budget))


def test_fewer_prefixes_than_the_budget_are_all_taken_and_the_rest_is_padded():
    logits = torch.randn(1, 2, 3)
    tree = ddtree_build_triton(logits, 20)
    assert tree.counts.tolist() == [3 + 9]
    assert tree.parents[0, 12:].tolist() == [-1] * 8
    assert tree.tokens[0, 12:].tolist() == tree.depths[0, 12:].tolist() == [0] * 8
    assert tree.log_probs[0, 12:].tolist() == [-torch.inf] * 8
    assert_same(tree, ddtree_build_ref(logits, 20))


def test_impossible_tokens_are_taken_last_and_are_not_padding():
    levels = torch.tensor([[0.0, -torch.inf], [-0.5, -torch.inf]])
    nodes = best_first(levels.tolist(), 9)
    tree = search(levels, 9)
    assert tree.counts.item() == len(nodes) == 6
    assert tree.parents[0, :6].tolist() == [node.parent for node in nodes]


def test_a_price_stops_the_search_at_the_first_node_below_it():
    levels = tied_levels(4, seed=3)
    everything = search(levels, 60).log_probs[0].double()
    for price in (-0.25, -0.5, -1.3, 0.5):
        tree = search(levels, 60, torch.tensor([price], dtype=torch.float64))
        assert tree.counts.item() == (everything >= price).sum()


def test_every_request_has_its_own_price():
    torch.manual_seed(0)
    logits = 2 * torch.randn(3, 5, 20)
    prices = torch.tensor([0.0, 0.02, 0.9])
    tree = ddtree_build_triton(logits, 40, prices)
    assert_same(tree, ddtree_build_ref(logits, 40, prices))
    assert tree.counts.tolist()[0] == 40 > tree.counts.tolist()[1] > 0
    one = ddtree_build_triton(logits, 40, 0.02)
    assert torch.equal(one.tokens[1], tree.tokens[1])
    assert log_price(0.0, logits).tolist() == [-torch.inf] * 3


def test_non_contiguous_logits_and_no_requests_are_served():
    logits = torch.randn(20, 4, 3).permute(2, 1, 0)
    tree = ddtree_build_triton(logits, 9)
    assert_same(tree, ddtree_build_ref(logits, 9))
    assert torch.equal(tree.tokens, ddtree_build_ref(logits.contiguous(), 9)[0])
    for empty in (torch.empty(0, 4, 20), torch.empty(3, 0, 20)):
        assert_same(ddtree_build_triton(empty, 9), ddtree_build_ref(empty, 9))


@pytest.mark.parametrize("build", [ddtree_build, ddtree_build_triton])
def test_bad_arguments_are_refused_with_the_numbers(build):
    with pytest.raises(ValueError, match=r"\(4, 20\), expected 3 dimensions"):
        build(torch.randn(4, 20), 9)
    with pytest.raises(ValueError, match="budget: 0"):
        build(torch.randn(1, 4, 20), 0)
    with pytest.raises(ValueError, match="budget: 513"):
        build(torch.randn(1, 4, 20), 513)
    with pytest.raises(ValueError, match=r"min_prob: shape \(2,\), expected \(1,\)"):
        build(torch.randn(1, 4, 20), 9, torch.zeros(2))
    with pytest.raises(ValueError, match="int64"):
        build(torch.ones(1, 4, 20, dtype=torch.int64), 9)


def test_log_probabilities_are_of_the_whole_vocabulary():
    logits = torch.randn(2, 3, 50)
    log_probs, ids = top_log_probs(logits, 4)
    torch.testing.assert_close(log_probs, logits.log_softmax(-1).gather(-1, ids))

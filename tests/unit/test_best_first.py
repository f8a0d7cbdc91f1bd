"""DDTree's search against all prefixes of a small block."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from best_first import best_first

levels = st.lists(
    st.lists(st.sampled_from([-0.25, -0.5, -1.0, -1.5, -3.0]), min_size=6, max_size=6).map(
        lambda row: sorted(row, reverse=True)
    ),
    min_size=4,
    max_size=4,
)


def path(nodes, i):
    ranks = []
    while i >= 0:
        ranks.append(nodes[i].rank)
        i = nodes[i].parent
    return tuple(reversed(ranks))


def all_prefixes(log_probs):
    """(log-probability, ranks) of every prefix."""
    for depth in range(1, len(log_probs) + 1):
        for ranks in itertools.product(range(len(log_probs[0])), repeat=depth):
            yield sum(log_probs[d][r] for d, r in enumerate(ranks)), ranks


@settings(max_examples=60, deadline=None)
@given(levels, st.integers(1, 60))
def test_the_tree_holds_the_most_probable_prefixes_of_all(log_probs, budget):
    nodes = best_first(log_probs, budget)
    best = sorted((p for p, _ in all_prefixes(log_probs)), reverse=True)[:budget]
    assert [round(node.log_prob, 9) for node in nodes] == [round(p, 9) for p in best]


@settings(max_examples=60, deadline=None)
@given(levels, st.integers(1, 60))
def test_every_node_is_another_prefix_and_follows_its_parent(log_probs, budget):
    nodes = best_first(log_probs, budget)
    assert len({path(nodes, i) for i in range(len(nodes))}) == len(nodes)
    for i, node in enumerate(nodes):
        assert node.parent < i
        assert node.depth == len(path(nodes, i))


def test_a_certain_block_is_a_chain():
    certain = [[0.0, -50.0, -60.0]] * 7
    assert [(n.parent, n.depth, n.rank) for n in best_first(certain, 7)] == [
        (d - 1, d + 1, 0) for d in range(7)
    ]


def test_ties_go_to_the_smaller_depth_then_rank():
    nodes = best_first([[-1.0, -2.0], [-1.0, -1.0]], 4)
    assert [(n.depth, n.rank) for n in nodes] == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_budget_beyond_all_prefixes_gives_them_all():
    assert len(best_first([[-1.0, -2.0], [-1.0, -2.0]], 512)) == 2 + 4

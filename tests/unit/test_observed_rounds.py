"""How far a draft would have got, told from the target's text alone."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from whiflash_sglang.router_training.observed_round import Tree


def linked(parents: list[int], tokens: list[int]) -> Tree:
    """A tree from parents (node 0 is the root, parents[i - 1] is node i's), as SGLang links it."""
    n = len(tokens)
    first, sibling = [-1] * n, [-1] * n
    for node in reversed(range(1, n)):
        parent = parents[node - 1]
        sibling[node], first[parent] = first[parent], node
    return Tree(tokens, first, sibling)


@st.composite
def trees(draw):
    n = draw(st.integers(1, 9))
    parents = [draw(st.integers(0, i)) for i in range(n - 1)]
    tokens = [draw(st.integers(0, 3)) for _ in range(n)]
    taken: set[tuple[int, int]] = set()
    for node in range(1, n):  # children of a node are distinct, as a drafter's are
        while (parents[node - 1], tokens[node]) in taken:
            tokens[node] += 1
        taken.add((parents[node - 1], tokens[node]))
    return parents, tokens


@given(trees(), st.lists(st.integers(0, 4), max_size=9))
def test_accepted_is_the_longest_path_that_the_text_follows(tree, text):
    parents, tokens = tree
    paths = [[]]
    for node in range(1, len(tokens)):
        path, at = [], node
        while at:
            path.append(tokens[at])
            at = parents[at - 1]
        paths.append(path[::-1])
    longest = max(len(p) for p in paths if p == text[: len(p)])
    got = linked(parents, tokens).accepted(text)
    continues = any(len(p) > len(text) and p[: len(text)] == text for p in paths)
    assert got == (None if continues else longest)


def test_a_chain_counts_its_leading_agreements():
    chain = linked([0, 1, 2], [9, 5, 6, 7])
    counts = [chain.accepted(text) for text in ([5, 6, 7, 8], [5, 6, 0], [5, 0], [0])]
    assert counts == [3, 2, 1, 0]


def test_a_text_that_ends_within_the_draft_tells_nothing():
    chain = linked([0, 1, 2], [9, 5, 6, 7])
    assert [chain.accepted(text) for text in ([], [5], [5, 6])] == [None] * 3


def test_every_branch_of_a_full_binary_tree_can_be_accepted():
    parents, tokens = [0, 0, 1, 1, 2, 2], [9, 1, 2, 3, 4, 3, 4]
    tree = linked(parents, tokens)
    assert all(tree.accepted([*path, 0]) == 2 for path in itertools.product((1, 2), (3, 4)))

"""The law of one sampled verify, enumerated exactly over a five-token vocabulary."""

import itertools
import random
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from unit.trees import path_to, random_parents, verify_input
from whiflash_sglang import sampling

VOCABULARY = 5
SHAPES = {
    "root alone": [],
    "chain": [0, 1, 2],
    "siblings": [0, 0, 0],
    "tree": [0, 0, 1, 1],
}


def distinct_siblings(parents, coin):
    """Drafted tokens of all nodes; children of one node differ."""
    tokens = [coin.randrange(VOCABULARY)]
    for node in range(1, len(parents) + 1):
        taken = {tokens[i] for i in range(1, node) if parents[i - 1] == parents[node - 1]}
        tokens.append(coin.choice([t for t in range(VOCABULARY) if t not in taken]))
    return tokens


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    group = SimpleNamespace(world_size=1)
    monkeypatch.setattr(sampling, "get_parallel", lambda: SimpleNamespace(tp_group=group))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_every_emitted_run_has_the_probability_that_the_target_gives_it(shape, seed):
    parents, coin = SHAPES[shape], random.Random(seed)
    n = len(parents) + 1
    drafted = distinct_siblings(parents, coin)
    laws = torch.rand(n, VOCABULARY, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    laws /= laws.sum(dim=1, keepdim=True)
    outcomes = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=n)))
    chance = laws[torch.arange(n), outcomes].prod(dim=1)
    tokens = torch.tensor([drafted]).repeat(len(outcomes), 1)
    predict, lengths, index = sampling._walk(verify_input(parents, tokens), outcomes)

    emitted = defaultdict(float)
    for row in range(len(outcomes)):
        run = predict[index[row, : lengths[row]].long()].tolist()
        emitted[tuple(run)] += float(chance[row])
    for run, probability in emitted.items():
        expected, node = 1.0, 0
        for step, token in enumerate(run):
            expected *= float(laws[node, token])
            children = [
                i + 1 for i, parent in enumerate(parents) if parent == node and drafted[i + 1] == token
            ]
            assert bool(children) == (step < len(run) - 1), "a run ends where no child holds its token"
            node = children[0] if children else node
        assert probability == pytest.approx(expected, abs=1e-12), run
    assert sum(emitted.values()) == pytest.approx(1.0, abs=1e-12)


def batch_info(**changes):
    info = {
        "is_all_greedy": False,
        "temperatures": torch.tensor([[1.0], [0.5]]),
        "top_ks": torch.tensor([VOCABULARY, VOCABULARY]),
        "top_ps": torch.tensor([1.0, 1.0]),
        "min_ps": torch.tensor([0.0, 0.0]),
        "need_top_k_sampling": False,
        "need_top_p_sampling": False,
        "need_min_p_sampling": False,
        "sampling_seed": None,
    }
    return SimpleNamespace(**info | changes)


def filtered(logits, temperature, top_k=VOCABULARY, top_p=1.0, min_p=0.0):
    """The law by definition: sort, cut, renormalise."""
    p = torch.softmax(logits / temperature, dim=-1)
    order = p.argsort(descending=True)
    kept, mass = [], 0.0
    for rank, token in enumerate(order.tolist()):
        if rank >= top_k or mass > top_p or p[token] < min_p * p[order[0]]:
            break
        kept.append(token)
        mass += float(p[token])
    law = torch.zeros_like(p)
    law[kept] = p[kept]
    return law / law.sum()


@pytest.mark.parametrize(
    ("changes", "filters"),
    [
        ({}, [{}, {}]),
        ({"need_top_k_sampling": True, "top_ks": torch.tensor([2, 1])}, [{"top_k": 2}, {"top_k": 1}]),
        ({"need_top_p_sampling": True, "top_ps": torch.tensor([0.6, 0.9])}, [{"top_p": 0.6}, {"top_p": 0.9}]),
        ({"need_min_p_sampling": True, "min_ps": torch.tensor([0.3, 0.7])}, [{"min_p": 0.3}, {"min_p": 0.7}]),
    ],
    ids=["temperature", "top-k", "top-p", "min-p"],
)
def test_each_row_is_drawn_from_its_own_requests_filtered_law(monkeypatch, changes, filters):
    width, drawn = 3, []

    def record(weights, num_samples, **_):
        drawn.append(weights.clone())
        return weights.argmax(dim=-1, keepdim=True)

    monkeypatch.setattr(torch, "multinomial", record)
    monkeypatch.setattr(
        sampling, "sampling_from_probs_torch", lambda probs, **_: record(probs, 1).squeeze(-1)
    )
    logits = torch.randn(2 * width, VOCABULARY, generator=torch.Generator().manual_seed(1))
    sampling.sample_rows(logits.clone(), batch_info(**changes), width, torch.arange(2 * width))
    (weights,) = drawn
    for row in range(2 * width):
        request = row // width
        temperature = [1.0, 0.5][request]
        expected = filtered(logits[row], temperature, **filters[request])
        law = weights[row] / weights[row].sum()
        if changes:  # the filtered sampler hands over weights in descending order
            expected = expected.sort(descending=True).values
        torch.testing.assert_close(law, expected, atol=1e-6, rtol=1e-5)


def test_random_trees_never_accept_a_token_that_was_not_sampled():
    for seed in range(20):
        coin = random.Random(seed)
        parents = random_parents(9, coin)
        drafted = torch.tensor([[coin.randrange(3) for _ in range(9)]])
        sampled = torch.tensor([[coin.randrange(3) for _ in range(9)]])
        info = verify_input(parents, drafted)
        _, lengths, index = sampling._walk(info, sampled)
        path = index[0, : lengths[0]].tolist()
        assert path == path_to(path[-1], parents)
        for parent, node in itertools.pairwise(path):
            assert drafted[0, node] == sampled[0, parent]

import math
from itertools import product

import pytest
import torch
import triton
import triton.language as tl
from kernel_cases import assert_same, random_parents
from triton.runtime.interpreter import InterpretedFunction

from whiflash_kernels import tree_verify_sample as op
from whiflash_kernels.tree_build import tree_build
from whiflash_kernels.tree_verify_sample_ref import allowed_ids, murmur3, tree_verify_sample_ref

tree_verify_sample, tree_verify_sample_triton = op.tree_verify_sample, op.tree_verify_sample_triton


def case(bs, n, vocabulary, dtype=torch.float32, filtered=True, seed=0):
    """All arguments but max_depth, on random trees."""
    torch.manual_seed(seed)
    links = tree_build(random_parents(bs, n, seed))
    filters = [None] * 3
    if filtered:
        filters = [torch.randint(1, 2 * vocabulary, (bs,)), 0.5 + torch.rand(bs) / 2, torch.rand(bs) / 10]
    return [
        torch.randint(min(vocabulary, 7), (bs, n)),
        (2 * torch.randn(bs, n, vocabulary)).to(dtype),
        links.next_token,
        links.next_sibling,
        0.5 + torch.rand(bs),
        *filters,
        torch.randint(-(2**62), 2**62, (bs,)),
        links.depths + torch.randint(100_000, (bs, 1)),
    ]


@pytest.mark.parametrize(
    ("bs", "n", "vocabulary", "dtype", "filtered"),
    [
        (1, 1, 5, torch.float32, False),
        (3, 13, 5, torch.float32, True),
        (17, 7, 5, torch.bfloat16, False),
        (3, 7, 1000, torch.float16, True),
        (1, 5, 9001, torch.float32, False),
        (1, 2, 151_936, torch.bfloat16, True),
        (1, 1, 151_936, torch.float32, False),
        (1, 64, 5, torch.bfloat16, True),
    ],
)
def test_the_kernel_equals_the_reference_on_random_trees(bs, n, vocabulary, dtype, filtered):
    arguments = case(bs, n, vocabulary, dtype, filtered, seed=n)
    assert_same(tree_verify_sample_triton(*arguments, n), tree_verify_sample_ref(*arguments, n))


@pytest.mark.parametrize("filtered", [(True, False, False), (False, True, False), (False, False, True)])
def test_each_filter_alone_equals_the_reference(filtered):
    arguments = case(3, 5, 30, torch.bfloat16)
    arguments[5:8] = [x if on else None for x, on in zip(arguments[5:8], filtered, strict=True)]
    assert_same(tree_verify_sample_triton(*arguments, 5), tree_verify_sample_ref(*arguments, 5))


def test_the_hash_is_murmur3():
    assert plain_murmur3(b"test") == 0xBA6BD213  # a published vector
    words = torch.tensor([int.from_bytes(b"0123456789abcdef"[i : i + 4], "little") for i in (0, 4, 8, 12)])
    hashed = murmur3(words[0] | words[1] << 32, words[2], words[3])
    assert hashed.item() == plain_murmur3(b"0123456789abcdef")


def plain_murmur3(data):
    """MurmurHash3_x86_32 in Python's integers."""
    state, full = 0, 0xFFFFFFFF

    def rotate(x, r):
        return (x << r | x >> (32 - r)) & full

    for i in range(0, len(data), 4):
        key = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & full
        state = rotate(state ^ rotate(key, 15) * 0x1B873593 & full, 13) * 5 + 0xE6546B64 & full
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & full
    state = (state ^ state >> 13) * 0xC2B2AE35 & full
    return state ^ state >> 16


def test_the_draw_of_many_seeds_follows_the_filtered_law():
    """Pearson's chi-square of 20,000 fixed seeds, below the 99.9 % point of each law's degrees of freedom."""
    logits, requests = torch.tensor([1.0, 0.0, -0.5, 2.0, 0.3]), 20_000
    laws = {(0, 1.0, 0.0): 18.47, (3, 1.0, 0.0): 13.82, (0, 0.85, 0.0): 13.82, (0, 1.0, 0.1): 13.82}
    for (top_k, top_p, min_p), bound in laws.items():
        law = filtered_law(logits.tolist(), 0.8, top_k, top_p, min_p)
        root = torch.zeros(requests, 1, dtype=torch.int64)
        filters = [torch.tensor([x]).expand(requests) for x in (top_k, top_p, min_p)]
        seeds, temperatures = torch.arange(requests), torch.full((requests,), 0.8)
        rows = logits.expand(requests, 1, 5)
        drawn = tree_verify_sample_ref(
            root, rows, root - 1, root - 1, temperatures, *filters, seeds, root + 7, 0
        )[2]
        counts = drawn.bincount(minlength=5).tolist()
        kept = [i for i in range(5) if law[i] > 0]
        assert sum(counts[i] for i in kept) == requests
        assert sum((counts[i] - requests * law[i]) ** 2 / (requests * law[i]) for i in kept) < bound
        assert len(kept) == (5 if bound > 18 else 3)


def filtered_law(logits, temperature, top_k, top_p, min_p):
    """The target's law by its definition, in Python's floats."""
    weights = [math.exp(x / temperature) for x in logits]
    probs = [w / sum(weights) for w in weights]
    order = sorted(range(len(probs)), key=lambda i: (-probs[i], i))
    kept, before = {}, 0.0
    for rank, i in enumerate(order):
        in_top_k = top_k <= 0 or rank < top_k
        if in_top_k and before <= top_p and probs[i] >= min_p * probs[order[0]]:
            kept[i] = probs[i]
        before += probs[i]
    return [kept.get(i, 0.0) / sum(kept.values()) for i in range(len(probs))]


def test_every_text_has_its_probability_under_the_target_whatever_was_drafted():
    """Two tokens after the prefix, all nine texts: frequencies over 4,000 seeds against the exact law."""
    requests, vocabulary, temperature = 4000, 3, 0.7
    torch.manual_seed(1)
    after = torch.randn(1 + vocabulary, vocabulary)  # logits after the prefix, then after each first token
    first_law = filtered_law(after[0].tolist(), temperature, 0, 0.9, 0.0)
    second = [filtered_law(row.tolist(), temperature, 0, 0.9, 0.0) for row in after[1:]]
    law = {(a, b): first_law[a] * second[a][b] for a, b in product(range(vocabulary), repeat=2)}
    for drafted in ([0], [2, 0]):
        texts = [tuple(text) for text in decode(after, drafted, requests, temperature)]
        chi = 0.0
        for text, probability in law.items():
            count = texts.count(text)
            assert probability > 0 or count == 0
            chi += (count - requests * probability) ** 2 / (requests * probability) if probability else 0.0
        assert chi < 26.12  # 99.9 % point of 8 degrees of freedom


def decode(after, drafted, requests, temperature, verify=tree_verify_sample_ref):
    """Two tokens of each of many seeded requests; the round drafts these first tokens under the root."""
    links = tree_build(torch.zeros(requests, len(drafted), dtype=torch.int32))
    candidates = torch.tensor([[0, *drafted]]).expand(requests, -1)
    logits = torch.stack([after[0], *(after[1 + token] for token in drafted)]).expand(requests, -1, -1)
    law = (
        torch.full((requests,), temperature),
        None,
        torch.full((requests,), 0.9),
        None,
        torch.arange(requests),
    )
    tree = (links.next_token, links.next_sibling)
    index, lens, bonus = verify(candidates, logits, *tree, *law, links.depths + 50, 1)
    accepted = candidates.gather(1, (index[:, -1:] % candidates.shape[1]).long()).squeeze(1)
    first = torch.where(lens == 2, accepted, bonus)
    root = torch.zeros(requests, 1, dtype=torch.int64)  # plain decoding of the token after a miss
    plain = verify(root, after[1 + first][:, None], root - 1, root - 1, *law, root + 51, 0)[2]
    return torch.stack([first, torch.where(lens == 2, bonus, plain)], dim=1).tolist()


def test_a_seeded_text_is_that_of_plain_decoding_whatever_was_drafted():
    torch.manual_seed(2)
    after = torch.randn(6, 5)
    plain = decode(after, [], 17, 1.3, tree_verify_sample_triton)
    assert len({tuple(text) for text in plain}) > 5
    for drafted in ([0], [3, 1], [4, 2, 0, 1, 3]):
        assert decode(after, drafted, 17, 1.3, tree_verify_sample_triton) == plain


def test_the_acceptance_rate_of_a_draft_is_its_probability():
    requests, logits = 20_000, torch.tensor([0.5, 1.5, -1.0])
    links = tree_build(torch.zeros(requests, 1, dtype=torch.int32))
    candidates = torch.tensor([[0, 0]]).expand(requests, -1)
    law = (torch.ones(requests), None, None, None, torch.arange(requests))
    rows = logits.expand(requests, 2, 3)
    tree = (links.next_token, links.next_sibling)
    lens = tree_verify_sample_ref(candidates, rows, *tree, *law, links.depths, 1)[1]
    probability = logits.softmax(0)[0].item()
    assert abs((lens == 2).float().mean().item() - probability) < 4 * math.sqrt(probability / requests)


def test_top_k_one_is_the_argmax_and_the_lowest_id_among_equals():
    arguments = case(3, 5, 30)
    arguments[1] = arguments[1].round()
    arguments[5:8] = torch.ones(3, dtype=torch.int32), None, None
    path = tree_verify_sample_triton(*arguments, 0)
    assert torch.equal(path.bonus, arguments[1][:, 0].argmax(dim=-1))


def test_equal_logits_at_the_cut_are_kept_in_the_order_of_their_ids():
    logits = torch.tensor([[[1.0, 2.0, 1.0, 1.0, 0.0]]])
    allowed = allowed_ids(logits, torch.ones(1), torch.tensor([3]), None, None)
    assert allowed.tolist() == [[[True, True, True, False, False]]]
    bonus = set()
    root = torch.zeros(17, 1, dtype=torch.int64)
    law = (torch.full((17,), 9.0), torch.full((17,), 3), None, None, torch.arange(17))
    path = tree_verify_sample_triton(root, logits.expand(17, 1, 5), root - 1, root - 1, *law, root, 0)
    bonus |= set(path.bonus.tolist())
    assert bonus == {0, 1, 2}


def test_masked_ids_are_never_drawn():
    arguments = case(17, 2, 5, filtered=False)
    arguments[1][..., [0, 1, 3]] = -torch.inf
    assert set(tree_verify_sample_triton(*arguments, 1).bonus.tolist()) <= {2, 4}


def test_logits_may_be_flat_or_strided_and_requests_none():
    arguments = case(17, 11, 2, filtered=False)
    arguments[4] += 50.0  # nearly uniform laws, so that a wrong key or row shows
    wanted = tree_verify_sample_ref(*arguments, 6)
    assert max(wanted[1]) > 2
    flat = [
        torch.stack([x.T, x.T + 7], dim=-1)[..., 0].T if x is not None and x.dim() == 2 else x
        for x in arguments
    ]
    flat[1] = torch.full((187, 5), torch.nan)[:, :2].copy_(arguments[1].flatten(0, 1))
    assert_same(tree_verify_sample_triton(*flat, 6), wanted)
    arguments = case(3, 5, 9)
    empty = [x[:0] for x in arguments]
    assert_same(tree_verify_sample_triton(*empty, 4), tree_verify_sample_ref(*empty, 4))


@triton.jit
def _gumbel_kernel(hashed_ptr, noise_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(noise_ptr + lane, op._gumbel(tl.load(hashed_ptr + lane).to(tl.uint32)))


@pytest.mark.filterwarnings("ignore:divide by zero")  # a hash of 0, which the kernel then replaces
def test_the_kernels_noise_is_accurate_for_every_hash():
    """Over the extremes of the hash, where float32 alone would round the quotient to 1."""
    near = torch.arange(160)
    powers = 2 ** torch.arange(32)
    hashed = torch.cat([near, 2**31 - 80 + near, 2**32 - 1 - near, powers])
    exponential = (-torch.log(hashed.double() / (2**32 - 1))).clamp(min=2.0**-32)
    wanted = torch.where(hashed == 0, -709.0, -exponential.log())
    noise = torch.empty(len(hashed))
    interpreted = InterpretedFunction(_gumbel_kernel.fn)
    interpreted[(1,)](hashed, noise, BLOCK=len(hashed))
    torch.testing.assert_close(noise.double(), wanted, atol=3e-7, rtol=3e-7)


@pytest.mark.parametrize("verify", [tree_verify_sample, tree_verify_sample_triton])
def test_bad_arguments_are_refused_with_the_numbers(verify):
    arguments = case(2, 4, 9)

    def with_argument(place, value):
        return [value if i == place else x for i, x in enumerate(arguments)]

    with pytest.raises(ValueError, match=r"logits: shape \(7, 9\), expected \(8, 'V'\)"):
        verify(*with_argument(1, torch.zeros(7, 9)), 3)
    with pytest.raises(ValueError, match=r"temperatures: shape \(2, 1\), expected \(2,\)"):
        verify(*with_argument(4, torch.ones(2, 1)), 3)
    with pytest.raises(ValueError, match=r"seeds: dtype torch\.int32"):
        verify(*with_argument(8, arguments[8].int()), 3)
    with pytest.raises(ValueError, match=r"positions: shape \(2, 3\), expected \(2, 4\)"):
        verify(*with_argument(9, arguments[9][:, :3]), 3)


def test_a_vocabulary_that_is_not_contiguous_is_refused_with_the_strides():
    arguments = case(2, 4, 9)
    arguments[1] = arguments[1].transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(ValueError, match=r"logits: strides \(36, 1, 4\)"):
        tree_verify_sample_triton(*arguments, 3)

"""Lazy catch-up: same drafts and texts as eager synchronisation, exact K/V, less work, a cache without holes."""

import random

import pytest
import torch

from engine import lab as labs
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references

ENGINES = {
    "slots": {},
    "slots, prompts in chunks of 7": {"chunked_prefill_size": 7},
    "pages of 16, prompts in chunks of 32": {"page_size": 16, "chunked_prefill_size": 32, **labs.CHAIN},
}


@pytest.fixture(scope="module", params=ENGINES)
def lab(truth, tmp_path_factory, request):
    with labs.whiflash(tmp_path_factory.mktemp("lab"), **ENGINES[request.param]) as lab:
        yield lab


def drafts_by_context(rounds: list[dict]) -> dict:
    return {(tuple(entry["context"]), entry["drafter"]): entry["tokens"] for entry in rounds}


def decode(lab, batch, truth, pattern, eager):
    lab.engine.flush_cache()
    lab.steer(pattern, truth, 0.3, eager=eager)
    lab.rounds()
    results = lab.generate(batch, max_new_tokens=40)
    return [r["output_ids"] for r in results], drafts_by_context(lab.rounds())


@pytest.mark.parametrize("requests", [1, 8])
@pytest.mark.parametrize("pattern", ["ED", "EEEEEEEED", "DDDDDDDDE", "EPPDPP"])
def test_lazy_and_eager_draft_and_decode_the_same(lab, prompts, truth, pattern, requests):
    batch = prompts[3 : 3 + requests]
    lazy_text, lazy = decode(lab, batch, truth, pattern, eager=False)
    eager_text, eager = decode(lab, batch, truth, pattern, eager=True)
    assert lazy_text == eager_text == [truth[tuple(prompt)][:40] for prompt in batch]
    shared = lazy.keys() & eager.keys()
    assert len(shared) > 8 * requests
    assert [key for key in shared if lazy[key] != eager[key]] == []


def test_drafts_are_the_references_in_a_full_batch(lab, prompts, truth, reference):
    lab.engine.flush_cache()
    lab.steer("EDD", truth, 0.3)
    lab.rounds()
    assert_plain_text(lab.generate(prompts, max_new_tokens=40), prompts, truth)
    assert_drafts_are_the_references(lab.rounds(), reference, sample=40)


@pytest.mark.parametrize("drafter", ["eagle3", "dflash"])
def test_kv_written_by_projections_alone_are_the_references(lab, prompts, truth, reference, drafter):
    lab.engine.flush_cache()
    lab.steer("EEEEEDDDDD", truth, 0.3, dump=True)
    lab.ids([prompts[8]], max_new_tokens=50)
    found = lab.draft_kv(drafter)
    assert len(found["context"]) > len(prompts[8]) + 10
    expected = getattr(reference, f"{drafter}_kv")(found["context"])
    for (k, v), (reference_k, reference_v) in zip(found["layers"], expected, strict=True):
        torch.testing.assert_close(k, reference_k, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(v, reference_v, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stay", [20, 1])
def test_an_idle_drafter_computes_nothing_but_kv_rows(lab, prompts, stay):
    """200 rounds; only rows that an EAGLE-3 draft starts from run in full, and no row is computed twice."""
    pattern = "E" * stay + "D" * stay
    work = {}
    for eager in (False, True):
        lab.engine.flush_cache()
        lab.steer(pattern, eager=eager)
        lab.rounds()
        lab.ids([prompts[0]], max_new_tokens=220)
        rounds = lab.rounds()[:200]
        first, last = rounds[0]["work"], rounds[-1]["work"]
        work[eager] = {d: {k: last[d][k] - first[d][k] for k in last[d]} for d in last}
        committed = rounds[-1]["outputs"] - rounds[0]["outputs"]
        for rows in work[eager].values():
            assert committed - 64 <= rows["kv_rows"] + rows["full_rows"] <= committed
    eagle_rounds = sum(entry["drafter"] == "eagle3" for entry in rounds) - 1
    assert work[False]["eagle3"]["full_rows"] == eagle_rounds
    assert work[True]["eagle3"]["full_rows"] == 199
    assert work[False]["dflash"]["full_rows"] == 0


def test_a_long_idle_drafter_is_written_early_and_drafts_as_the_reference(lab, prompts, reference):
    lab.engine.flush_cache()
    for pattern in ("D" * 150 + "E" * 9, "E" * 150 + "D" * 9):
        lab.steer(pattern)
        lab.rounds()
        lab.ids([prompts[9]], max_new_tokens=170)
        switched = [
            entry for entry in lab.rounds() if entry["drafter"] != {"D": "dflash", "E": "eagle3"}[pattern[0]]
        ]
        assert_drafts_are_the_references(switched, reference, sample=5)


def test_a_second_turn_finds_every_drafters_kv_in_the_cache(lab, prompts, truth, reference):
    lab.engine.flush_cache()
    for pattern in ("E" * 99, "D" * 99):  # the other drafter's rows are pending when the request ends
        lab.steer(pattern, truth, 0.3)
        first = lab.generate([prompts[3]], max_new_tokens=30)[0]
        other = "D" if pattern[0] == "E" else "E"
        lab.steer(other)
        lab.rounds()
        follow_up = prompts[3] + first["output_ids"] + [77, 78, 79]
        second = lab.generate([follow_up], max_new_tokens=6)[0]
        assert second["meta_info"]["cached_tokens"] >= len(prompts[3]) + 16
        assert_drafts_are_the_references(lab.rounds(), reference)


def test_three_hundred_requests_over_six_prefixes_leave_no_trace(lab, reference):
    coin = random.Random(5)
    prefixes = [[coin.randrange(100, 40000) for _ in range(40)] for _ in range(6)]
    lab.engine.flush_cache()
    lab.steer("EDDE")
    for start in range(0, 300, 60):
        lab.rounds()
        batch = [
            [*coin.choice(prefixes)[: coin.randrange(20, 40)], coin.randrange(100, 40000)] for _ in range(60)
        ]
        params = [labs.GREEDY | {"max_new_tokens": coin.randrange(2, 9)} for _ in batch]
        results = lab.engine.generate(input_ids=batch, sampling_params=params)
        assert [len(r["output_ids"]) for r in results] == [p["max_new_tokens"] for p in params]
        if start in (0, 240):
            assert_drafts_are_the_references(lab.rounds(), reference, sample=40)
    assert lab.unaccounted_slots() == [0, 3]

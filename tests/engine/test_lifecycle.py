"""Requests that come, go, are aborted or retracted, in an engine whose pool cannot hold them all."""

import asyncio

import pytest

from engine import lab as labs
from engine.lab import assert_plain_text
from engine.reference import assert_drafts_are_the_references


@pytest.fixture(scope="module")
def tight(truth, tmp_path_factory):
    """An engine whose KV pool cannot hold all requests at once."""
    folder = tmp_path_factory.mktemp("tight")
    with labs.whiflash(folder, max_total_tokens=420, max_running_requests=6) as lab:
        yield lab


def test_a_full_pool_retracts_and_gives_the_same_text_later(tight, prompts, truth):
    tight.steer("EDD", truth, 0.4)
    batch = [prompts[i] for i in (0, 1, 3, 4, 8, 10)]
    results = tight.generate(batch, max_new_tokens=56)
    assert sum(r["meta_info"]["num_retractions"] for r in results) > 0
    assert [len(r["output_ids"]) for r in results] == [56] * 6
    assert_plain_text(results, batch, truth)


def test_an_aborted_request_leaves_the_others_alone(tight, prompts, truth):
    tight.steer("ED", truth, 0.7)
    kept = [prompts[i] for i in (0, 2, 5)]

    async def scenario():
        params = labs.GREEDY | {"max_new_tokens": 40}
        others = [tight.engine.async_generate(input_ids=p, sampling_params=params) for p in kept]
        victim = await tight.engine.async_generate(
            input_ids=prompts[3], sampling_params=params, rid="victim", stream=True
        )
        waiting = asyncio.gather(*others)
        async for _ in victim:
            tight.engine.tokenizer_manager.abort_request("victim")
        return await waiting

    results = tight.engine.loop.run_until_complete(scenario())
    assert [len(r["output_ids"]) for r in results] == [40] * 3
    assert_plain_text(results, kept, truth)


def test_long_short_long_in_a_row_reuses_slots_cleanly(tight, prompts, truth, reference):
    tight.engine.flush_cache()
    tight.steer("DE", truth, 0.4)
    tight.rounds()
    for i in (8, 9, 8, 6, 3):
        assert_plain_text(tight.generate([prompts[i]], max_new_tokens=20), [prompts[i]], truth)
    assert_drafts_are_the_references(tight.rounds(), reference, sample=30)


def test_no_slot_leaks_over_finishes_stops_aborts_and_retractions(tight, prompts, truth):
    test_a_full_pool_retracts_and_gives_the_same_text_later(tight, prompts, truth)
    test_an_aborted_request_leaves_the_others_alone(tight, prompts, truth)
    stop = truth[tuple(prompts[1])][5]
    tight.generate([prompts[1]], max_new_tokens=30, stop_token_ids=[stop])
    assert tight.unaccounted_slots() == [0, 3]

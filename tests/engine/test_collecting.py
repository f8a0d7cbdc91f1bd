"""Collecting rounds for a router, in a real engine of the tiny models."""

from functools import partial

import pytest
import torch

from engine import lab as labs
from engine import tiny
from whiflash_sglang.engine import make_engine
from whiflash_sglang.router_training import records as records_on_disk
from whiflash_sglang.router_training.collect import Plan, collect
from whiflash_sglang.router_training.observing_worker import Observation, observing_worker
from whiflash_sglang.router_training.prompts import Prompt

WHIFLASH = {"eagle_draft": str(tiny.eagle3())}
ENGINE = (
    labs.COMMON
    | labs.TREE
    | {
        "model_path": str(tiny.target()),
        "speculative_draft_model_path": str(tiny.dflash()),
    }
)
SETTING = records_on_disk.Setting(
    target="tiny",
    pair="df-e3",
    positive="eagle3",
    negative="dflash",
    tree_budget=None,
    hidden_size=tiny.SHAPE["hidden_size"],
    eagle_draft="tiny-eagle3",
    dflash_draft="tiny-dflash",
    eagle_tree=(3, 4, 8),
    block_size=8,
    dtype="float32",
    max_new_tokens=12,
    sample_every=1,
)


@pytest.fixture(scope="module")
def observed(prompts, tmp_path_factory):
    """(prompt, output ids, observed rounds) of some prompts decoded together by the observing worker."""
    folder = tmp_path_factory.mktemp("notes")
    observation = Observation(str(folder), sample_every=1)
    engine = make_engine(
        whiflash=WHIFLASH | {"router": "random"}, worker=partial(observing_worker, observation), **ENGINE
    )
    batch = [prompts[i] for i in (0, 1, 3)]
    try:
        results = engine.generate(
            input_ids=batch, sampling_params=labs.GREEDY | {"max_new_tokens": 16}, rid=["a", "b", "c"]
        )
        notes = [torch.load(folder / f"{rid}.pt", weights_only=False) for rid in "abc"]
    finally:
        engine.shutdown()
    return [(p, r["output_ids"], n["rounds"]) for p, r, n in zip(batch, results, notes, strict=True)]


def test_drafting_with_both_drafters_leaves_the_text_alone(observed, truth):
    for prompt, output_ids, _ in observed:
        assert output_ids == truth[tuple(prompt)][: len(output_ids)]


def test_every_round_notes_what_both_drafters_draft_from_its_prefix(observed, reference):
    for prompt, output_ids, rounds in observed:
        assert len(rounds) >= 2
        for note in rounds[:4]:
            context = prompt + output_ids[: note.outputs]
            assert note.position == len(context)
            assert note.drafts["dflash"].tokens[1:] == reference.dflash_block(context)
            tree = note.drafts["eagle3"]
            level, child = [], tree.next_token[0]
            while child != -1:
                level.append(tree.tokens[child])
                child = tree.next_sibling[child]
            assert set(level) == set(reference.eagle3_first_level(context, len(level)))


def test_every_round_notes_the_targets_state_at_the_last_accepted_row(observed, reference):
    for prompt, output_ids, rounds in observed:
        for note in rounds[:3]:
            seen = prompt + output_ids[: note.outputs - 1]
            torch.testing.assert_close(
                note.hidden.float(), reference.final_hidden(seen), rtol=1e-2, atol=1e-2
            )
            assert note.entropy == pytest.approx(reference.entropy(seen), abs=1e-3)


def test_a_second_run_collects_only_what_is_missing_and_names_what_fails(prompts, tmp_path):
    asked = [Prompt(f"p{i}", "chat", ids=tuple(prompts[i])) for i in (0, 1, 3)]
    plan = Plan(tmp_path, shard_prompts=2, concurrency=2)
    engine = {**ENGINE, "max_running_requests": 2}
    collect(asked[:2], SETTING, plan, engine, WHIFLASH)
    first = (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns
    too_long = Prompt("p9", "chat", ids=tuple(range(100, 1100)))  # beyond the context
    collected = collect([*asked, too_long], SETTING, plan, engine, WHIFLASH)
    assert collected.failed == ["p9"]
    found, setting = records_on_disk.load(tmp_path)
    assert found.prompts == ["p0", "p1", "p3", "p9"]
    assert setting == SETTING
    assert (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns == first
    assert set(found.prompt.tolist()) == {0, 1, 2}

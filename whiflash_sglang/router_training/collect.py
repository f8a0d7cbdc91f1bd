"""Collect sampled rounds: the target decodes prompts in SGLang, and both drafters draft from the same prefixes.

Greedy only: the target's text then tells exactly how far each draft would have got.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from whiflash_sglang.router_training.observed_round import ObservedRound
from whiflash_sglang.router_training.prompts import Prompt
from whiflash_sglang.router_training.records import (
    Records,
    RoundTimes,
    Setting,
    done_prompts,
    list_shards,
    read_shard,
    write_shard,
)

_TIMES = "rounds.jsonl"


@dataclass(frozen=True)
class Plan:
    """How to collect.

    Attributes:
        output: folder of shards; goes on where a former run stopped.
        shard_prompts: prompts per shard; a killed run loses at most one shard.
        concurrency: prompts decoded together.
        seed: of the sampling of rounds.
        chat: keyword arguments of the chat template.
    """

    output: Path
    shard_prompts: int = 64
    concurrency: int = 1
    seed: int = 0
    chat: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Collected:
    """What a run left beside its shards.

    Attributes:
        times: the median round times so far, as written to ``round_times.json``; None
            while a drafter has no undisturbed round yet.
        failed: ids of the prompts that SGLang refused or that broke off in this run.
    """

    times: RoundTimes | None
    failed: list[str]


def collect(
    prompts: Sequence[Prompt],
    setting: Setting,
    plan: Plan,
    engine_arguments: dict[str, Any],
    whiflash: dict[str, Any],
) -> Collected:
    """Collect what is missing of ``prompts`` and write it, shard by shard.

    Args:
        setting: recorded in every shard; must be the folder's, where it has shards.
        engine_arguments: of SGLang's engine, the DFlash draft and the tree shape among them.
        whiflash: fields of ``WhiflashConfig`` other than the router.

    Raises:
        ValueError: the folder holds records of another setting.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    _require_same_setting(plan.output, setting)
    done = done_prompts(plan.output)
    todo, failed = [p for p in prompts if p.id not in done], list[str]()
    if todo:
        with tempfile.TemporaryDirectory(prefix="whiflash-rounds-") as notes:
            failed = _collect(todo, setting, plan, engine_arguments, whiflash, Path(notes))
    return Collected(write_round_times(plan.output), failed)


def _require_same_setting(folder: Path, setting: Setting) -> None:
    shards = list_shards(folder)
    if shards and (differences := setting.differences(read_shard(shards[0])[1])):
        raise ValueError(
            f"--output {folder} holds rounds of another setting (ours / theirs: {'; '.join(differences)})"
        )


def _collect(
    todo: Sequence[Prompt],
    setting: Setting,
    plan: Plan,
    engine_arguments: dict[str, Any],
    whiflash: dict[str, Any],
    notes: Path,
) -> list[str]:
    """Write the shards of ``todo``; the ids that failed."""
    from transformers import AutoTokenizer

    from whiflash_sglang.engine import make_engine
    from whiflash_sglang.router_training.observing_worker import Observation, observing_worker

    observation = Observation(str(notes), setting.sample_every, plan.seed)
    engine = make_engine(
        whiflash=whiflash | {"router": "random", "router_seed": plan.seed},
        worker=partial(observing_worker, observation),
        **engine_arguments,
    )
    try:
        asker = _Asker(
            engine, AutoTokenizer.from_pretrained(engine_arguments["model_path"]), setting, plan, notes
        )
        first = len(list_shards(plan.output))
        with tqdm(total=len(todo), unit="prompt", desc="collecting") as bar:
            for number, start in enumerate(range(0, len(todo), plan.shard_prompts)):
                members = todo[start : start + plan.shard_prompts]
                records = asker.records_of(members, bar)
                write_shard(plan.output, first + number, records, setting)
                asker.append_times(plan.output / _TIMES)
        return asker.failed
    finally:
        engine.shutdown()


class _Asker:
    """Sends prompts and turns what the worker noted into records."""

    def __init__(self, engine: Any, tokenizer: Any, setting: Setting, plan: Plan, notes: Path) -> None:
        self._engine, self._tokenizer, self._notes = engine, tokenizer, notes
        self._setting, self._plan = setting, plan
        self._times: list[tuple[str, float]] = []
        self.failed: list[str] = []

    def records_of(self, prompts: Sequence[Prompt], bar: tqdm) -> Records:
        """All sampled rounds of some prompts; a prompt that fails is reported and counts as done."""
        limit = asyncio.Semaphore(self._plan.concurrency)

        async def one(prompt: Prompt) -> list[dict[str, Any]]:
            async with limit:
                rows = await self._ask(prompt, bar)
            bar.update()
            return rows

        async def all_of_them() -> list[list[dict[str, Any]]]:
            return await asyncio.gather(*(one(prompt) for prompt in prompts))

        by_prompt = self._engine.loop.run_until_complete(all_of_them())
        return _to_records(prompts, by_prompt, self._setting.hidden_size)

    def append_times(self, path: Path) -> None:
        """Add the undisturbed rounds' (drafter, seconds) to a file of JSON Lines."""
        with path.open("a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in self._times)
        self._times.clear()

    async def _ask(self, prompt: Prompt, bar: tqdm) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        messages: list[dict[str, str]] = []
        for turn in prompt.turns or (None,):
            if turn is None:
                ids = list(prompt.ids)
            else:
                messages.append({"role": "user", "content": turn})
                rendered = self._tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=False, **self._plan.chat
                )
                ids = self._tokenizer(rendered, add_special_tokens=False).input_ids
            try:
                found, output_ids = await self._rounds_of(ids)
            except Exception as error:  # SGLang answers a refused request with its own kinds
                bar.write(f"{prompt.id}: {type(error).__name__}: {error}")
                self.failed.append(prompt.id)
                break
            rows += found
            answer = self._tokenizer.decode(output_ids, skip_special_tokens=True)
            messages.append({"role": "assistant", "content": answer})
        return rows

    async def _rounds_of(self, prompt_ids: list[int]) -> tuple[list[dict[str, Any]], list[int]]:
        rid = uuid.uuid4().hex
        params = {"temperature": 0, "max_new_tokens": self._setting.max_new_tokens}
        result = await self._engine.async_generate(input_ids=prompt_ids, sampling_params=params, rid=rid)
        path = self._notes / f"{rid}.pt"
        noted = torch.load(path, weights_only=False)  # written by our own worker a moment ago
        path.unlink()
        self._times += noted["times"]
        ended = result["meta_info"]["finish_reason"]["type"] == "stop"
        rows = (self._row(note, result["output_ids"], ended) for note in noted["rounds"])
        return [row for row in rows if row is not None], result["output_ids"]

    def _row(self, note: ObservedRound, output_ids: list[int], ended: bool) -> dict[str, Any] | None:
        """One record's values; None where the text ends before it can tell how far a draft gets."""
        ahead = output_ids[note.outputs :]
        if not ahead:
            return None  # the request was over; the round was drafted for nothing
        if ended:
            ahead = [*ahead, -2]  # after the stop token nothing agrees
        names = {"pos": self._setting.positive, "neg": self._setting.negative}
        lengths = {side: note.drafts[name].accepted(ahead) for side, name in names.items()}
        if None in lengths.values():
            return None
        return {
            "hidden": note.hidden,
            "entropy": note.entropy,
            "top1": note.top1,
            "position": note.position,
            **{f"recent_{side}": note.recent.get(name, math.nan) for side, name in names.items()},
            **{f"al_{side}": 1.0 + length for side, length in lengths.items() if length is not None},
        }


def _to_records(
    prompts: Sequence[Prompt], by_prompt: list[list[dict[str, Any]]], hidden_size: int
) -> Records:
    rows = [(i, row) for i, rows in enumerate(by_prompt) for row in rows]
    hidden = torch.stack([row["hidden"] for _, row in rows]) if rows else torch.empty(0, hidden_size)
    numbers = ("entropy", "top1", "recent_pos", "recent_neg", "al_pos", "al_neg")
    columns = {name: torch.tensor([row[name] for _, row in rows], dtype=torch.float32) for name in numbers}
    return Records(
        hidden=hidden.to(torch.bfloat16),
        prompt=torch.tensor([i for i, _ in rows], dtype=torch.int64),
        position=torch.tensor([row["position"] for _, row in rows], dtype=torch.int64),
        prompts=[p.id for p in prompts],
        categories=[p.category for p in prompts],
        **columns,
    )


def write_round_times(folder: Path) -> RoundTimes | None:
    """Median seconds per round by drafter over all rounds noted; None while one of them has none."""
    path = folder / _TIMES
    by_drafter: dict[str, list[float]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        drafter, seconds = json.loads(line)
        by_drafter.setdefault("dflash" if drafter == "ddtree" else drafter, []).append(seconds)
    if not {"eagle3", "dflash"} <= set(by_drafter):
        return None
    medians = {name: statistics.median(seconds) for name, seconds in by_drafter.items()}
    times = RoundTimes(medians["eagle3"], medians["dflash"])
    times.write(folder)
    return times

"""Faults of the kinds this design invites, switched on one at a time in a running engine.

Each is a mistake somebody could make in the worker. The suite's checks must
fail under every one of them, or they do not check what they claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

FAULTS: dict[str, Callable[[Callable[[], bool]], None]] = {}


def fault(install: Callable[[Callable[[], bool]], None]) -> Callable:
    FAULTS[install.__name__] = install
    return install


@fault
def no_compaction_after_a_tree(active: Callable[[], bool]) -> None:
    from whiflash_sglang import worker

    verify = worker.run_eagle_verify

    def faulty(*args: Any, **kwargs: Any) -> Any:
        return verify(*args, **kwargs | {"finalize_tree_path": not active()})

    worker.run_eagle_verify = faulty


@fault
def feature_columns_swapped_between_drafters(active: Callable[[], bool]) -> None:
    from whiflash_sglang.features import FeatureColumns

    pick = FeatureColumns.__call__

    def faulty(columns: Any, captured: torch.Tensor) -> torch.Tensor:
        if active():  # the columns of layers one tap further
            width = columns._hidden_size
            captured = captured.roll(width, dims=-1)
        return pick(columns, captured)

    FeatureColumns.__call__ = faulty


@fault
def positions_off_by_one(active: Callable[[], bool]) -> None:
    from whiflash_sglang.drafters import dflash

    positions = dflash.window_positions

    def faulty(seq_lens: torch.Tensor, width: int) -> torch.Tensor:
        return positions(seq_lens, width) + int(active())

    dflash.window_positions = faulty


@fault
def pending_rows_taken_for_written(active: Callable[[], bool]) -> None:
    from whiflash_sglang.catch_up.ledger import Ledger

    committed = Ledger.committed

    def faulty(ledger: Any, batch: Any, *rows: torch.Tensor) -> None:
        committed(ledger, batch, *rows)
        if active():
            for i, req in enumerate(batch.reqs):
                ledger._ready["dflash"][req.kv.req_pool_idx] = int(batch.seq_lens[i]) + 1

    Ledger.committed = faulty


@fault
def start_of_a_draft_not_computed_anew(active: Callable[[], bool]) -> None:
    from whiflash_sglang.drafters.eagle3 import Eagle3Drafter

    begin, kept = Eagle3Drafter.begin, {}

    def faulty(drafter: Any, batch: Any, last: Any) -> None:
        begin(drafter, batch, last)
        state = batch.spec_info
        for i, req in enumerate(batch.reqs):
            if active() and req.rid in kept:
                state.topk_p[i], state.topk_index[i] = kept[req.rid]
            kept[req.rid] = state.topk_p[i].clone(), state.topk_index[i].clone()

    Eagle3Drafter.begin = faulty


@fault
def published_with_rows_pending(active: Callable[[], bool]) -> None:
    from whiflash_sglang.worker import WhiflashWorker

    release = WhiflashWorker.prepare_for_kv_cache_release

    def faulty(worker: Any, req: Any) -> None:
        if not active():
            release(worker, req)

    WhiflashWorker.prepare_for_kv_cache_release = faulty


@fault
def filter_by_length_instead_of_index(active: Callable[[], bool]) -> None:
    from sglang.srt.speculative.eagle_info import EagleDraftInput

    original = EagleDraftInput.filter_batch

    def faulty(state: Any, new_indices: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if active():
            new_indices = torch.arange(len(new_indices))
        original(state, new_indices, *args, **kwargs)

    EagleDraftInput.filter_batch = faulty


@fault
def router_row_taken_before_compaction(active: Callable[[], bool]) -> None:
    from whiflash_sglang.signals import Signals

    score = Signals.score_rounds

    def faulty(signals: Any, batch: Any, result: Any) -> None:
        if not active():
            return score(signals, batch, result)
        width = result.next_token_ids.numel() // len(batch.reqs)
        rows = torch.arange(len(batch.reqs)) * width + result.accept_lens.long() - 1
        signals._score(batch, rows, rows)

    Signals.score_rounds = faulty


@fault
def score_kept_over_slot_reuse(active: Callable[[], bool]) -> None:
    from whiflash_sglang.signals import Signals

    score = Signals.score_prompts

    def faulty(signals: Any, batch: Any) -> None:
        if not active():
            score(signals, batch)

    Signals.score_prompts = faulty


def install(control: Callable[[], dict]) -> None:
    """Wrap everything once; a fault acts while the control file names it."""
    for name, wrap in FAULTS.items():
        wrap(lambda name=name: control().get("fault") == name)

"""Which positions of every request hold a drafter's K/V, which are pending, and who is caught up when.

Of one request with L committed positions, for each drafter that takes part:

    position   0                      ready              L - 1   L
               ├──── draft K/V ───────┤├──── pending ────────┤   bonus token, not yet run by the target
               ├─ (forgotten) ─┤├── kept: PendingRows ───────┤
                                L - bound

* A prompt chunk writes the K/V of all its rows for all drafters, since SGLang
  publishes prompts to the prefix cache right after it: ``ready`` = L.
* A verify adds rows to the right and moves no ``ready``: L - ready grows.
* Before a drafter drafts, its pending rows are written in one pass of K/V
  projections alone (``ready`` = L); EAGLE-3 runs the last row in full, whether
  pending or not, because drafting starts from its output.
* An idle drafter is written early where the next round could make L - ready
  exceed ``bound``, and when a request's slots go to the prefix cache, which
  hands them to requests that expect every drafter's K/V in them.

A retracted request's slots are freed without being published; its next prompt
begins a new entry. So an entry is keyed by request slot and needs no clean-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from whiflash_sglang.catch_up.pending import PendingRows
from whiflash_sglang.drafters.base import Drafter
from whiflash_sglang.rounds import ContextRows


@dataclass
class Work:
    """Rows that one drafter computed to be up to date."""

    kv_rows: int = 0  # K/V projections alone
    full_rows: int = 0  # through the layer and the head


class Ledger:
    """See the module's docstring.

    Args:
        drafters: those that take part in the run.
        pending: the committed rows that may be pending.
        widest_commit: most rows that one round adds to a request.
        translator: SGLang's ``KVIndexTranslator`` of the target's slots.
    """

    def __init__(
        self, drafters: Iterable[Drafter], pending: PendingRows, widest_commit: int, translator: Any
    ):
        self._drafters = list(drafters)
        self._pending, self._widest, self._translator = pending, widest_commit, translator
        slots = translator.req_to_token.shape[0]
        self._ready = {d.name: np.zeros(slots, dtype=np.int64) for d in self._drafters}
        self.work = {d.name: Work() for d in self._drafters}

    def prompt(self, batch: Any, rows: ContextRows) -> None:
        """Write the K/V of a prompt chunk's rows for every drafter, and keep each request's last row.

        Args:
            rows: of all requests, one after the other.
        """
        ends = np.add(batch.prefix_lens, batch.extend_lens)
        for drafter in self._drafters:
            drafter.write_context(rows)
            self.work[drafter.name].kv_rows += len(rows)
            self._ready[drafter.name][_slots(batch)] = ends
        last = torch.as_tensor(np.cumsum(batch.extend_lens) - 1, device=rows.positions.device)
        self._pending.put(
            batch.req_pool_indices,
            rows.positions[last],
            rows.features[last].unsqueeze(1),
            rows.next_tokens[last].unsqueeze(1),
        )

    def committed(self, batch: Any, features: torch.Tensor, next_tokens: torch.Tensor) -> None:
        """Keep the rows that a verify accepted, at the positions from each request's length on.

        Args:
            batch: with ``seq_lens`` as they were before the verify.
            features: [requests, rows, feature_size]; rows past the accepted ones
                may hold anything, they are overwritten before they are read.
            next_tokens: int64 [requests, rows], the token after each row.
        """
        self._pending.put(batch.req_pool_indices, batch.seq_lens, features, next_tokens)

    def catch_up(self, batch: Any, drafter: Any) -> list[int]:
        """Bring a drafter up to date for its next draft; the rows written or run, per request."""
        lens, slots = _lens(batch), _slots(batch)
        if drafter.name not in self._ready:
            return [0] * len(slots)
        ready = self._ready[drafter.name]
        missing = lens - ready[slots]
        stops = lens - 1 if drafter.needs_last_row else lens
        self._write(drafter, slots, ready[slots], stops)
        if drafter.needs_last_row:
            drafter.begin(batch, self._rows(slots, stops, lens))
            self.work[drafter.name].full_rows += len(slots)
            missing = np.maximum(missing, 1)
        ready[slots] = lens
        return missing.tolist()

    def make_room(self, batch: Any) -> int:
        """Write the pending rows of drafters whose next verify could go past the bound; how many rows."""
        lens, slots, written = _lens(batch), _slots(batch), 0
        for drafter in self._drafters:
            ready = self._ready[drafter.name]
            if (lens + self._widest - ready[slots]).max() > self._pending.bound:
                written += self._write(drafter, slots, ready[slots], lens)
                ready[slots] = lens
        return written

    def release(self, slot: int, length: int) -> int:
        """Write all pending rows of one request below ``length``, for the prefix cache; how many rows."""
        slots, stops = np.array([slot]), np.array([length])
        written = 0
        for drafter in self._drafters:
            ready = self._ready[drafter.name]
            written += self._write(drafter, slots, ready[slots], stops)
            ready[slot] = max(ready[slot], length)
        return written

    def check_integrity(self, batch: Any) -> None:
        """Assert the intervals of the diagram for a batch whose round is over.

        Raises:
            AssertionError: names the drafter, the request slot and the numbers.
        """
        for slot, length in zip(_slots(batch), batch.seq_lens.tolist(), strict=True):
            for name, ready in self._ready.items():
                at = f"{name}, request slot {slot}: ready {ready[slot]}, length {length}"
                assert 0 <= ready[slot] <= length, at
                assert length - ready[slot] <= self._pending.bound, f"{at}, bound {self._pending.bound}"
                needed = torch.arange(min(int(ready[slot]), length - 1), length)
                owner = torch.full_like(needed, slot)
                held = self._pending.holds(owner, needed)
                assert held.all(), f"{at}; not kept: {needed[~held.cpu()].tolist()}"

    def _write(self, drafter: Drafter, slots: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> int:
        rows = self._rows(slots, starts, stops)
        if len(rows):
            drafter.write_context(rows)
            self.work[drafter.name].kv_rows += len(rows)
        return len(rows)

    def _rows(self, slots: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> ContextRows:
        """The kept rows [start, stop) of each slot, one request after the other."""
        counts = np.maximum(stops - starts, 0)
        first = np.cumsum(counts) - counts
        positions = np.arange(counts.sum()) + np.repeat(starts - first, counts)
        device = self._translator.req_to_token.device
        at = torch.from_numpy(positions).to(device)
        owner = torch.from_numpy(np.repeat(slots, counts)).to(device)
        features, next_tokens = self._pending.take(owner, at)
        plan = self._translator.plan(
            req_pool_indices=owner,
            seq_lens=at,
            seq_lens_cpu=None,
            write_virtual=self._translator.req_to_token[owner, at].to(torch.int64),
        )
        return ContextRows(features, next_tokens, at, plan)


def _slots(batch: Any) -> np.ndarray:
    """Request slots on the host, int64 [requests]."""
    return np.array([req.kv.req_pool_idx for req in batch.reqs])


def _lens(batch: Any) -> np.ndarray:
    """Committed lengths on the host; SGLang knows them unless no attention backend asks for them."""
    lens = batch.seq_lens if batch.seq_lens_cpu is None else batch.seq_lens_cpu
    return lens.cpu().numpy().astype(np.int64)

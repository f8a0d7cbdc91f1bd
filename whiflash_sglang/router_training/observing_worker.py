"""A WHIFLASH worker that, in sampled rounds, has both drafters draft from the same prefix and notes it.

One of the drafts is verified as always, so the text is the target's own; how far
the other would have got follows from that text, without a second verify.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whiflash_sglang.features import TargetTap
from whiflash_sglang.router_training.observed_round import ObservedRound, Tree
from whiflash_sglang.routing import RoundSignals
from whiflash_sglang.routing.fixed import RandomRouter
from whiflash_sglang.signals import Signals
from whiflash_sglang.vocabulary import logits_processor_of
from whiflash_sglang.worker import WhiflashWorker

_RECENT_ROUNDS = 8
_REQUESTS_KEPT = 4096  # notes of aborted requests are never fetched: the oldest go


@dataclass(frozen=True)
class Observation:
    """What to note.

    Attributes:
        folder: where the notes of a finished request go, as ``<rid>.pt``.
        sample_every: one round in so many is sampled, on average.
        seed: of the sampling and of the random router.
    """

    folder: str
    sample_every: int
    seed: int = 0


def observing_worker(observation: Observation) -> type:
    """The worker class for one observation; see ``engine.make_engine(worker=...)``."""
    return type("ObservingWorker", (ObservingWorker,), {"observation": observation})


class WatchingRouter(RandomRouter):
    """Picks by a coin; asks for the signals only so that they can be noted."""

    name = "watching"
    needs_hidden = True
    needs_entropy = True

    def score(self, signals: RoundSignals) -> torch.Tensor:
        """Zeros float32 [requests]."""
        assert signals.entropy is not None
        return torch.zeros_like(signals.entropy)


class NotedSignals(Signals):
    """Signals that are kept by request slot as well: hidden state bfloat16, entropy, top-1 probability."""

    def __init__(self, router: Any, runner: Any, widest_verify: int) -> None:
        super().__init__(router, runner, widest_verify)
        best = torch.empty(self.rows, dtype=torch.float32, device=runner.device)
        self._top1_tap = TargetTap(logits_processor_of(runner.model), hidden=None, entropy=None, top1=best)
        self.noted: dict[int, tuple[torch.Tensor, float, float]] = {}

    def _score(self, batch: Any, hidden_rows: torch.Tensor, logits_rows: torch.Tensor) -> None:
        super()._score(batch, hidden_rows, logits_rows)
        hidden, entropy = self.tap.hidden(hidden_rows), self.tap.entropy(logits_rows)
        best = self._top1_tap.top1(logits_rows)
        assert hidden is not None
        assert entropy is not None
        assert best is not None
        rows = zip(hidden.to("cpu", torch.bfloat16), entropy.tolist(), best.tolist(), strict=True)
        for slot, signals in zip(batch.req_pool_indices.tolist(), rows, strict=True):
            self.noted[slot] = signals


class ObservingWorker(WhiflashWorker):
    """See the module's docstring. ``observation`` is set by :func:`observing_worker`."""

    observation: Observation

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.router = WatchingRouter(self.observation.seed)
        runner, widest = self._target_worker.model_runner, max(shape.width for shape in self._shapes())
        self.signals: NotedSignals = NotedSignals(self.router, runner, widest)
        self._coin = random.Random(self.observation.seed)
        self._notes: dict[str, list[ObservedRound]] = {}
        self._recent: dict[str, dict[str, deque]] = {}
        self._clock = _Clock()

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """As the parent's; the clock notes how long undisturbed rounds take."""
        self._clock.starts(None if batch.forward_mode.is_extend() else [req.rid for req in batch.reqs])
        return super().forward_batch_generation(batch, *args, **kwargs)

    def prepare_for_kv_cache_release(self, req: Any) -> None:
        """SGLang's call before a finished request's result is sent: write what was noted of it."""
        super().prepare_for_kv_cache_release(req)
        found = {"rounds": self._notes.pop(req.rid, []), "times": self._clock.take()}
        self._recent.pop(req.rid, None)
        folder = Path(self.observation.folder)
        staged = folder / f"{req.rid}.part"
        torch.save(found, staged)
        staged.rename(folder / f"{req.rid}.pt")

    def _draft(self, batch: Any, drafter: Any) -> Any:
        sampled = drafter is not self.plain and self._coin.random() * self.observation.sample_every < 1
        self._clock.drafts(None if sampled else drafter.name)
        if not sampled:
            return super()._draft(batch, drafter)
        inputs = {}
        for other in (d for d in self._drafters.values() if d is not drafter):
            self.ledger.catch_up(batch, other)
            inputs[other.name] = other.draft(batch, self.runtimes.activate)
        inputs[drafter.name] = super()._draft(batch, drafter)
        for i, req in enumerate(batch.reqs):
            trees = {name: Tree.of(info, i) for name, info in inputs.items()}
            self._note(req, int(batch.req_pool_indices[i]), trees)
        return inputs[drafter.name]

    def _note(self, req: Any, slot: int, drafts: dict[str, Tree]) -> None:
        hidden, entropy, best = self.signals.noted[slot]
        recent = {name: statistics.fmean(lengths) for name, lengths in self._recent.get(req.rid, {}).items()}
        position = len(req.origin_input_ids) + len(req.output_ids)
        note = ObservedRound(len(req.output_ids), position, hidden, entropy, best, recent, drafts)
        self._notes.setdefault(req.rid, []).append(note)
        for kept in (self._notes, self._recent):
            while len(kept) > _REQUESTS_KEPT:
                kept.pop(next(iter(kept)))

    def _verify(self, batch: Any, drafter: Any, grammar_barrier: Any) -> Any:
        result = super()._verify(batch, drafter, grammar_barrier)
        for req, length in zip(batch.reqs, result.accept_lens.tolist(), strict=True):
            by_drafter = self._recent.setdefault(req.rid, defaultdict(lambda: deque(maxlen=_RECENT_ROUNDS)))
            by_drafter[drafter.name].append(length)
        return result


class _Clock:
    """Seconds from the start of a round to the start of the next, where both have the same requests.

    Rounds in which both drafters drafted, and prompts, are left out.
    """

    def __init__(self) -> None:
        self._requests: list[str] | None = None
        self._drafter: str | None = None
        self._started = 0.0
        self._found: list[tuple[str, float]] = []

    def starts(self, requests: list[str] | None) -> None:
        """A forward of these requests starts; None for a prompt."""
        now = time.perf_counter()
        if self._drafter is not None and requests is not None and requests == self._requests:
            self._found.append((self._drafter, now - self._started))
        self._requests, self._drafter, self._started = requests, None, now

    def drafts(self, drafter: str | None) -> None:
        """Who drafts the round that has started; None where its time does not count."""
        self._drafter = drafter

    def take(self) -> list[tuple[str, float]]:
        """(drafter, seconds) since the last call."""
        found, self._found = self._found, []
        return found

"""Per-round records, per request, and the one definition of acceptance length.

acceptance length = 1 + accepted drafts / verify rounds, without tokens after a
stop. The token that the prompt itself yields belongs to no round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from whiflash_sglang.clock import Laps

META_KEY = "whiflash_rounds"  # in a response's meta_info: one Round per round, as a list


class Round(NamedTuple):
    """One verify round of one request.

    Attributes:
        drafter: who drafted.
        drafted: draft tokens verified, the root not counted.
        accepted: of those.
        requests: requests in the batch of that round.
        caught_up: rows that the drafter wrote or ran of this request before it drafted.
        released: rows written for other drafters when the request ended.
        seconds: this request's share of the round's time, in the order of ``clock.PARTS``.
        expected: the acceptance length that the drafter's probabilities promised; None where it has none.
    """

    drafter: str
    drafted: int
    accepted: int
    requests: int
    caught_up: int
    released: int
    seconds: list[float]
    expected: float | None


class RoundInfo:
    """SGLang's per-round channel into each request's ``meta_info``.

    Item i is read when the round's result is processed, so accept lengths are
    on the host by then and nothing waits for the device. Where the round was a
    request's last, its slots have been released by then too.

    Args:
        drafter: its name.
        drafted: nodes verified per request, the root not counted.
        caught_up: rows, per request.
        laps: of the round.
        released: (rows, laps) by request slot of the requests that have ended; emptied of this round's.
        expected: acceptance lengths float32 [requests], or None.
        on_known: called once the round's time is known, with (drafter, verify rows, tokens committed,
            seconds in the order of ``clock.PARTS``), all requests together.
    """

    def __init__(
        self,
        drafter: str,
        drafted: int,
        batch: Any,
        result: Any,
        caught_up: Sequence[int],
        laps: Laps,
        released: dict[int, tuple[int, Laps]],
        *,
        expected: torch.Tensor | None = None,
        on_known: Callable[[str, int, int, list[float]], None] | None = None,
    ) -> None:
        self._drafter, self._drafted, self._result, self._caught_up = drafter, drafted, result, caught_up
        self._slots = [req.kv.req_pool_idx for req in batch.reqs]
        self._laps, self._released = laps, released
        self._promised, self._on_known = expected, on_known

    def __getitem__(self, i: int) -> list:
        requests = len(self._slots)
        seconds = [part / requests for part in self._seconds]
        rows, laps = self._released.pop(self._slots[i], (0, None))
        if laps is not None:
            seconds = [a + b for a, b in zip(seconds, laps.seconds(), strict=True)]
        accepted, rounded = int(self._result.accept_lens[i]) - 1, [round(part, 6) for part in seconds]
        rows_and_time = self._caught_up[i], rows, rounded
        return list(
            Round(self._drafter, self._drafted, accepted, requests, *rows_and_time, self._expected[i])
        )

    @cached_property
    def _seconds(self) -> list[float]:
        seconds = self._laps.seconds()
        if self._on_known is not None:
            rows = len(self._slots) * (1 + self._drafted)
            self._on_known(self._drafter, rows, int(self._result.accept_lens.sum()), seconds)
        return seconds

    @cached_property
    def _expected(self) -> Sequence[float | None]:
        if self._promised is None:
            return [None] * len(self._slots)
        return [round(length, 4) for length in self._promised.tolist()]


@dataclass
class Acceptance:
    """Counts over verify rounds, of one request or many."""

    rounds: Counter[str] = field(default_factory=Counter)  # by drafter
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    histogram: Counter[tuple[str, int]] = field(default_factory=Counter)  # (drafter, accepted)
    trees: Counter[tuple[str, int]] = field(default_factory=Counter)  # (drafter, nodes drafted)
    promised: dict[str, float] = field(
        default_factory=dict
    )  # expected acceptance lengths, summed, by drafter
    switches: int = 0

    @classmethod
    def of_request(cls, rounds: Iterable[Sequence], completion_tokens: int) -> Acceptance:
        """From a response's ``meta_info[META_KEY]`` and its number of output tokens.

        Args:
            rounds: a :class:`Round` of each verify round, in order.
            completion_tokens: tokens of the answer; the first one is the prompt's.
        """
        counts, left, before = cls(), completion_tokens - 1, None
        for record in rounds:
            if left <= 0:
                break  # the stop was found in an earlier round
            this = Round(*record)
            kept = min(this.accepted, left)
            counts._add(this, kept)
            counts.switches += before is not None and before != this.drafter
            left, before = left - kept - 1, this.drafter
        return counts

    def _add(self, this: Round, kept: int) -> None:
        drafter = this.drafter
        self.rounds[drafter] += 1
        self.drafted[drafter] += this.drafted
        self.accepted[drafter] += kept
        self.histogram[drafter, kept] += 1
        self.trees[drafter, this.drafted] += 1
        if this.expected is not None:
            self.promised[drafter] = self.promised.get(drafter, 0.0) + this.expected

    def __iadd__(self, other: Acceptance) -> Acceptance:
        self.rounds += other.rounds
        self.drafted += other.drafted
        for drafter in other.accepted:  # Counter's += would drop zeros
            self.accepted[drafter] += other.accepted[drafter]
        self.histogram += other.histogram
        self.trees += other.trees
        for drafter, length in other.promised.items():
            self.promised[drafter] = self.promised.get(drafter, 0.0) + length
        self.switches += other.switches
        return self

    def length(self, drafter: str | None = None) -> float | None:
        """Acceptance length, over all rounds or one drafter's; None without rounds."""
        rounds = self.rounds.total() if drafter is None else self.rounds[drafter]
        accepted = self.accepted.total() if drafter is None else self.accepted[drafter]
        return 1 + accepted / rounds if rounds else None

    def by_depth(self, drafter: str) -> list[float]:
        """Share of the drafter's rounds that accepted at least 1, 2, ... drafts, to the most that any accepted."""
        accepted = Counter({n: rounds for (name, n), rounds in self.histogram.items() if name == drafter})
        deepest = max(accepted, default=0)
        at_least = [sum(accepted[n] for n in range(depth, deepest + 1)) for depth in range(1, deepest + 1)]
        return [rounds / self.rounds[drafter] for rounds in at_least]

    def expected_length(self, drafter: str) -> float | None:
        """Mean acceptance length that the drafter's own probabilities promised; None where it has none."""
        return self.promised[drafter] / self.rounds[drafter] if drafter in self.promised else None

    def share(self) -> dict[str, float]:
        """Fraction of rounds by drafter."""
        total = self.rounds.total()
        return {drafter: count / total for drafter, count in sorted(self.rounds.items())}

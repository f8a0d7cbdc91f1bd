"""Per-round records, per request, and the one definition of acceptance length.

acceptance length = 1 + accepted drafts / verify rounds, without tokens after a
stop. The token that the prompt itself yields belongs to no round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

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
    """

    drafter: str
    drafted: int
    accepted: int
    requests: int
    caught_up: int
    released: int
    seconds: list[float]


class RoundInfo:
    """SGLang's per-round channel into each request's ``meta_info``.

    Item i is read when the round's result is processed, so accept lengths are
    on the host by then and nothing waits for the device. Where the round was a
    request's last, its slots have been released by then too.

    Args:
        caught_up: rows, per request.
        laps: of the round.
        released: (rows, laps) by request slot of the requests that have ended; emptied of this round's.
    """

    def __init__(
        self,
        drafter: Any,
        batch: Any,
        result: Any,
        caught_up: Sequence[int],
        laps: Laps,
        released: dict[int, tuple[int, Laps]],
    ) -> None:
        self._drafter, self._result, self._caught_up = drafter, result, caught_up
        self._slots = [req.kv.req_pool_idx for req in batch.reqs]
        self._laps, self._released = laps, released

    def __getitem__(self, i: int) -> list:
        requests = len(self._slots)
        seconds = [part / requests for part in self._seconds]
        rows, laps = self._released.pop(self._slots[i], (0, None))
        if laps is not None:
            seconds = [a + b for a, b in zip(seconds, laps.seconds(), strict=True)]
        accepted, drafted = int(self._result.accept_lens[i]) - 1, self._drafter.width - 1
        name, rounded = self._drafter.name, [round(part, 6) for part in seconds]
        return list(Round(name, drafted, accepted, requests, self._caught_up[i], rows, rounded))

    @cached_property
    def _seconds(self) -> list[float]:
        return self._laps.seconds()


@dataclass
class Acceptance:
    """Counts over verify rounds, of one request or many."""

    rounds: Counter[str] = field(default_factory=Counter)  # by drafter
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    histogram: Counter[tuple[str, int]] = field(default_factory=Counter)  # (drafter, accepted)
    switches: int = 0

    @classmethod
    def of_request(cls, rounds: Iterable[Sequence], completion_tokens: int) -> Acceptance:
        """From a response's ``meta_info[META_KEY]`` and its number of output tokens.

        Args:
            rounds: a :class:`Round` of each verify round, in order.
            completion_tokens: tokens of the answer; the first one is the prompt's.
        """
        counts, left, before = cls(), completion_tokens - 1, None
        for drafter, drafted, accepted, *_ in rounds:
            if left <= 0:
                break  # the stop was found in an earlier round
            kept = min(accepted, left)
            counts.rounds[drafter] += 1
            counts.drafted[drafter] += drafted
            counts.accepted[drafter] += kept
            counts.histogram[drafter, kept] += 1
            counts.switches += before is not None and before != drafter
            left, before = left - kept - 1, drafter
        return counts

    def __iadd__(self, other: Acceptance) -> Acceptance:
        self.rounds += other.rounds
        self.drafted += other.drafted
        for drafter in other.accepted:  # Counter's += would drop zeros
            self.accepted[drafter] += other.accepted[drafter]
        self.histogram += other.histogram
        self.switches += other.switches
        return self

    def length(self, drafter: str | None = None) -> float | None:
        """Acceptance length, over all rounds or one drafter's; None without rounds."""
        rounds = self.rounds.total() if drafter is None else self.rounds[drafter]
        accepted = self.accepted.total() if drafter is None else self.accepted[drafter]
        return 1 + accepted / rounds if rounds else None

    def share(self) -> dict[str, float]:
        """Fraction of rounds by drafter."""
        total = self.rounds.total()
        return {drafter: count / total for drafter, count in sorted(self.rounds.items())}

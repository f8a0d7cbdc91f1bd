"""Per-round records, per request, and the one definition of acceptance length.

acceptance length = 1 + accepted drafts / verify rounds, without tokens after a
stop. The token that the prompt itself yields belongs to no round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

META_KEY = "whiflash_rounds"  # in a response's meta_info: one [drafter, drafted, accepted] per round


class RoundInfo:
    """SGLang's per-round channel into each request's ``meta_info``.

    Item i is read when the round's result is processed, so accept lengths are
    on the host by then and nothing waits for the device.
    """

    def __init__(self, drafter: str, drafted: int, result: Any) -> None:
        self._drafter, self._drafted, self._result = drafter, drafted, result

    def __getitem__(self, i: int) -> list:
        return [self._drafter, self._drafted, int(self._result.accept_lens[i]) - 1]


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
            rounds: [drafter, drafted, accepted] of each verify round, in order.
            completion_tokens: tokens of the answer; the first one is the prompt's.
        """
        counts, left, before = cls(), completion_tokens - 1, None
        for drafter, drafted, accepted in rounds:
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

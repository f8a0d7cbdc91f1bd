"""What rounds cost, part by part, and what switching between drafters adds.

switching = the catch-up that a run which never switches would not pay: of
rounds whose drafter is not the one of the round before, the time above what
this drafter's other rounds take on average for it; and all rows written for a
drafter that does not draft the round (early, or when a request ends). Routing
is not in it. A drafter that never stays for two rounds has no average to
compare with: its whole catch-up counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from whiflash_sglang.clock import CATCH_UP, IDLE_CATCH_UP, PARTS
from whiflash_sglang.metrics import Round


@dataclass
class RoundCosts:
    """Sums over rounds, of one request or many; seconds are the request's shares of its rounds."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    rows: int = 0  # caught up before drafting
    released_rows: int = 0  # written for idle drafters at a request's end
    rounds: Counter[tuple[str, bool]] = field(default_factory=Counter)  # by drafter, and whether it is new
    catch_up: dict[tuple[str, bool], float] = field(default_factory=dict)  # seconds, likewise

    @classmethod
    def of_request(cls, rounds: Iterable[Sequence]) -> RoundCosts:
        """From a response's ``meta_info[META_KEY]``. The first round after a prompt switches from nothing."""
        costs, before = cls(), None
        for record in rounds:
            this = Round(*record)
            parts = dict(zip(PARTS, this.seconds, strict=True))
            key = this.drafter, before is not None and before != this.drafter
            costs += cls(parts, this.caught_up, this.released, Counter([key]), {key: parts[CATCH_UP]})
            before = this.drafter
        return costs

    def __iadd__(self, other: RoundCosts) -> RoundCosts:
        for part, seconds in other.seconds.items():
            self.seconds[part] += seconds
        for key, seconds in other.catch_up.items():
            self.catch_up[key] = self.catch_up.get(key, 0.0) + seconds
        self.rounds += other.rounds
        self.rows += other.rows
        self.released_rows += other.released_rows
        return self

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())

    def time_share(self) -> dict[str, float] | None:
        """Fraction of the rounds' time by part, idle catch-up under catch-up; None without rounds."""
        if not self.total:
            return None
        merged = {part: self.seconds[part] for part in PARTS if part != IDLE_CATCH_UP}
        merged[CATCH_UP] += self.seconds[IDLE_CATCH_UP]
        return {part: seconds / self.total for part, seconds in merged.items()}

    def switching_share(self) -> float | None:
        """Fraction of the rounds' time that switching costs, see the module's docstring; None without rounds."""
        return self.switching_seconds() / self.total if self.total else None

    def switching_seconds(self) -> float:
        """Seconds that switching costs, see the module's docstring."""
        extra = self.seconds[IDLE_CATCH_UP]
        for drafter in {name for name, is_new in self.rounds if is_new}:
            stays = self.rounds[drafter, False]
            usual = self.catch_up[drafter, False] / stays if stays else 0.0
            extra += max(0.0, self.catch_up[drafter, True] - self.rounds[drafter, True] * usual)
        return extra

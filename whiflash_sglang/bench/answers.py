"""What a benchmark asks and what it gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whiflash_sglang.bench.loops import loop_start
from whiflash_sglang.metrics import Acceptance
from whiflash_sglang.round_costs import RoundCosts


@dataclass(frozen=True)
class Request:
    """How every turn is decoded."""

    max_new_tokens: int
    temperature: float
    enable_thinking: bool = False

    def sampling_params(self) -> dict[str, Any]:
        """SGLang's sampling parameters."""
        return {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature}


@dataclass
class Answer:
    """One turn's outcome. ``error`` is set where the request failed; the run goes on."""

    id: str
    category: str
    prompt_ids: list[int]
    output_ids: list[int] = field(default_factory=list)
    text: str = ""
    seconds: float = 0.0
    acceptance: Acceptance = field(default_factory=Acceptance)
    acceptance_before_loop: Acceptance = field(default_factory=Acceptance)
    costs: RoundCosts = field(default_factory=RoundCosts)
    loop_start: int | None = None  # index in output_ids, see loops.py
    sglang_accept_length: float | None = None
    error: str | None = None

    def count(self, rounds: Sequence[Sequence], completion_tokens: int) -> None:
        """Count verify rounds, over the whole answer and over its part before a loop."""
        self.loop_start = loop_start(self.output_ids)
        before = completion_tokens if self.loop_start is None else self.loop_start
        self.costs = RoundCosts.of_request(rounds)
        self.acceptance = Acceptance.of_request(rounds, completion_tokens)
        self.acceptance_before_loop = Acceptance.of_request(rounds, before)


@dataclass(frozen=True)
class Group:
    """Conversations of one category that an arm decoded together: wall seconds and output tokens."""

    category: str
    seconds: float
    tokens: int
    failed: bool = False


@dataclass
class ArmRun:
    """All answers of one arm, and the groups they came in, in the order of the run."""

    name: str
    answers: list[Answer] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def add(self, category: str, seconds: float, answers: Sequence[Answer]) -> None:
        """Take in what a group of conversations came to."""
        tokens = sum(len(answer.output_ids) for answer in answers)
        failed = any(answer.error is not None for answer in answers)
        self.groups.append(Group(category, seconds, tokens, failed))
        self.answers.extend(answers)

    @property
    def busy_seconds(self) -> dict[str, float]:
        """Seconds in which the arm had requests running, by category."""
        found: dict[str, float] = {}
        for group in self.groups:
            found[group.category] = found.get(group.category, 0.0) + group.seconds
        return found

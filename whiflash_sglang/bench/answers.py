"""What a benchmark asks and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whiflash_sglang.metrics import Acceptance


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
    sglang_accept_length: float | None = None
    error: str | None = None


@dataclass
class ArmRun:
    """All answers of one arm, and the seconds in which it had requests running, by category."""

    name: str
    answers: list[Answer] = field(default_factory=list)
    busy_seconds: dict[str, float] = field(default_factory=dict)

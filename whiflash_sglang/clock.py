"""How long the parts of a round take, on the device that runs them."""

from __future__ import annotations

import time
from typing import Any

import torch

PARTS = ("routing", "catch_up", "idle_catch_up", "draft", "verify", "commit", "other")
ROUTING, CATCH_UP, IDLE_CATCH_UP, DRAFT, VERIFY, COMMIT, OTHER = PARTS


class Laps:
    """Seconds by part, from the moment of construction on.

    On a CPU the wall's; elsewhere those between events on the current stream,
    so that taking them waits for nothing. They must be over when read.
    """

    def __init__(self, device: str) -> None:
        self._on_host = device == "cpu"
        self._marks: list[tuple[str, Any]] = [("", self._now())]

    def end(self, part: str) -> None:
        """All time since the last call belongs to ``part``, one of PARTS."""
        self._marks.append((part, self._now()))

    def seconds(self) -> list[float]:
        """In the order of PARTS."""
        found = dict.fromkeys(PARTS, 0.0)
        for (_, before), (part, after) in zip(self._marks, self._marks[1:], strict=False):
            found[part] += after - before if self._on_host else before.elapsed_time(after) / 1000
        return [found[part] for part in PARTS]

    def _now(self) -> Any:
        if self._on_host:
            return time.perf_counter()
        event = torch.Event(device=torch.accelerator.current_accelerator(), enable_timing=True)
        event.record()
        return event

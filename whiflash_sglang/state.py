"""What the router keeps per request between rounds."""

from __future__ import annotations

import torch


class RouterScores:
    """One score per request slot, so that joining or leaving a batch moves nothing.

    A slot's score is written when its prompt is done and after every verify,
    always before it is read; a slot that is handed to another request is
    written again by that request's prompt.
    """

    def __init__(self, slots: int, device: torch.device | str) -> None:
        self._by_slot = torch.full((slots,), float("nan"), dtype=torch.float32, device=device)

    def write(self, slots: torch.Tensor, scores: torch.Tensor) -> None:
        """Set scores float32 [n] of request slots int64 [n]."""
        self._by_slot[slots] = scores

    def read(self, slots: torch.Tensor) -> torch.Tensor:
        """Scores float32 [n] of request slots int64 [n]."""
        return self._by_slot[slots]

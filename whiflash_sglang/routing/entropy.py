"""Entropy router: an uncertain target leaves the block-diffusion drafter for EAGLE-3."""

from __future__ import annotations

import torch

from whiflash_sglang.routing.base import DFLASH, EAGLE3, RoundSignals, Router


class EntropyRouter(Router):
    """score = H - tau, H the target's entropy in nats; EAGLE-3 where the sum over requests is above 0."""

    name = "entropy"
    needs_entropy = True

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def score(self, signals: RoundSignals) -> torch.Tensor:
        """See :meth:`Router.score`."""
        assert signals.entropy is not None, "the entropy router was given no entropy"
        return signals.entropy - self.threshold

    def pick(self, scores: torch.Tensor) -> str:
        """See :meth:`Router.pick`."""
        return EAGLE3 if float(scores.sum()) > 0 else DFLASH

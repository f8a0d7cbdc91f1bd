"""Neural router: a two-layer MLP on the target's final hidden state predicts the gain in acceptance."""

from __future__ import annotations

import torch

from whiflash_kernels.router_mlp import router_mlp
from whiflash_sglang.routing.base import DFLASH, EAGLE3, RoundSignals, Router
from whiflash_sglang.routing.checkpoint import RouterCheckpoint


class NeuralRouter(Router):
    """score = dAL - threshold, where dAL = w2 GELU(w1 h + b1) + b2 (float32).

    dAL is the expected acceptance length of the positive drafter minus the
    other's. Scores here always speak for EAGLE-3, so they are negated where
    DFlash is the positive drafter.

    Source: the WhiFlash router model cards.
    """

    name = "neural"
    needs_hidden = True

    def __init__(self, checkpoint: RouterCheckpoint, threshold: float, device: str) -> None:
        self.threshold = threshold
        self._sign = 1.0 if checkpoint.positive == EAGLE3 else -1.0
        self._w1 = checkpoint.w1.to(device, torch.float32)
        self._b1 = checkpoint.b1.to(device, torch.float32)
        self._w2 = checkpoint.w2.to(device, torch.float32)
        self._b2 = checkpoint.b2.to(device, torch.float32)

    def delta(self, hidden: torch.Tensor) -> torch.Tensor:
        """dAL float32 [requests] for final hidden states [requests, hidden_size]."""
        return router_mlp(hidden, self._w1, self._b1, self._w2, self._b2)

    def score(self, signals: RoundSignals) -> torch.Tensor:
        """See :meth:`Router.score`."""
        assert signals.hidden is not None, "the neural router was given no hidden states"
        return self._sign * (self.delta(signals.hidden) - self.threshold)

    def pick(self, scores: torch.Tensor) -> str:
        """See :meth:`Router.pick`; a tie goes to the router's negative drafter."""
        total = float(scores.sum())
        if total == 0:
            return DFLASH if self._sign > 0 else EAGLE3
        return EAGLE3 if total > 0 else DFLASH

"""Routers that look at nothing: one drafter always, by turns, or by a coin."""

from __future__ import annotations

import random

import torch

from whiflash_sglang.routing.base import DFLASH, EAGLE3, Router


class FixedRouter(Router):
    """Always the same drafter: the baseline arms ``dflash`` and ``eagle3``."""

    def __init__(self, drafter: str) -> None:
        self.name = drafter

    @property
    def drafters(self) -> tuple[str, ...]:
        """The one drafter; the other is kept out of the run."""
        return (self.name,)

    def pick(self, scores: torch.Tensor) -> str:
        """See :meth:`Router.pick`."""
        return self.name


class AlternateRouter(Router):
    """EAGLE-3, DFlash, EAGLE-3, ...: every round switches, the hardest case for state."""

    name = "alternate"

    def __init__(self) -> None:
        self._rounds = 0

    def pick(self, scores: torch.Tensor) -> str:
        """See :meth:`Router.pick`."""
        self._rounds += 1
        return EAGLE3 if self._rounds % 2 else DFLASH


class RandomRouter(Router):
    """A fair seeded coin; equal on every rank."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._coin = random.Random(seed)

    def pick(self, scores: torch.Tensor) -> str:
        """See :meth:`Router.pick`."""
        return self._coin.choice((EAGLE3, DFLASH))

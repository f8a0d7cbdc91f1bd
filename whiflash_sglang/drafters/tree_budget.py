"""How many nodes a round's DDTree gets: a fixed number, or the one that pays best."""

from __future__ import annotations

from typing import Protocol

import torch

from whiflash_sglang.pace import Pace


class TreeBudget(Protocol):
    """Chooses among the budgets it may choose from, ascending; the verify needs a runtime for each."""

    ladder: tuple[int, ...]

    def choose(self, log_probs: torch.Tensor) -> int:
        """A budget of the ladder for a batch.

        Args:
            log_probs: float32 [requests, widest budget], of each tree's nodes, most probable first.
        """


class FixedBudget:
    """Always the same."""

    def __init__(self, nodes: int) -> None:
        self.ladder: tuple[int, ...] = (nodes,)

    def choose(self, log_probs: torch.Tensor) -> int:
        """See :class:`TreeBudget`."""
        return self.ladder[0]


class AdaptiveBudget:
    """Goes on as long as the next nodes are worth more tokens than the time of their rows.

    A node is worth its path's probability in tokens; a second is worth the tokens that the
    last rounds yielded in one. So the choice maximises

        expected tokens - tokens per second * seconds of the verify rows

    which is what maximises throughput in the long run. Every width is tried a few times first,
    unless its cost is known from an earlier run.
    """

    def __init__(self, ladder: tuple[int, ...], pace: Pace) -> None:
        self.ladder, self._pace = ladder, pace

    def choose(self, log_probs: torch.Tensor) -> int:
        """See :class:`TreeBudget`."""
        requests, costs = len(log_probs), self._pace.costs
        rows = {budget: requests * (budget + 1) for budget in self.ladder}
        unknown = [budget for budget in self.ladder if not costs.known(rows[budget])]
        rate = self._pace.tokens_per_second
        if unknown:
            return min(unknown, key=lambda budget: costs.rounds(rows[budget]))
        if rate is None:
            return self.ladder[0]
        tokens = log_probs.exp().sum(dim=0).cumsum(dim=0).tolist()
        return max(self.ladder, key=lambda budget: tokens[budget - 1] - rate * costs.seconds(rows[budget]))

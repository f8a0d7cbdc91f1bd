"""What every router is: a score per request, and one decision per round over the live batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

EAGLE3 = "eagle3"
DFLASH = "dflash"  # the pair's block drafter: DFlash, or its tree form DDTree


@dataclass(frozen=True)
class RoundSignals:
    """What the target shows at the last accepted row of each request.

    Attributes:
        hidden: [requests, hidden_size], the final hidden state after the final norm;
            None where the router does not ask for it.
        entropy: float32 [requests], entropy in nats of the target's next-token law,
            before penalties, bias and grammar; None where the router does not ask for it.
    """

    hidden: torch.Tensor | None
    entropy: torch.Tensor | None


class Router(ABC):
    """Turns signals into scores (kept per request) and scores into one drafter per round."""

    name: str
    needs_hidden = False
    needs_entropy = False

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafters this router can ever pick."""
        return (EAGLE3, DFLASH)

    @property
    def reads_target(self) -> bool:
        """Whether scores exist at all."""
        return self.needs_hidden or self.needs_entropy

    def score(self, signals: RoundSignals) -> torch.Tensor:
        """float32 [requests]; above 0 speaks for EAGLE-3, by how much.

        Raises:
            NotImplementedError: this router reads nothing.
        """
        raise NotImplementedError(f"the {self.name} router has no scores")

    @abstractmethod
    def pick(self, scores: torch.Tensor) -> str:
        """The drafter of the next round, from the live requests' scores, float32 [requests]."""

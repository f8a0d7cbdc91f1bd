"""One sampled round of one request: what the target showed, and what each drafter drafted from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Tree:
    """A draft of one request. Node 0 is the bonus token; -1 stands for no node.

    Attributes:
        tokens: [nodes].
        next_token: [nodes], the first child.
        next_sibling: [nodes].
    """

    tokens: list[int]
    next_token: list[int]
    next_sibling: list[int]

    @classmethod
    def of(cls, verify_input: Any, i: int) -> Tree:
        """Request i's tree in SGLang's ``EagleVerifyInput``."""
        tokens = verify_input.draft_token.view(-1, verify_input.draft_token_num)
        parts = tokens, verify_input.retrieve_next_token, verify_input.retrieve_next_sibling
        return cls(*(part[i].tolist() for part in parts))

    def accepted(self, continuation: Sequence[int]) -> int | None:
        """Drafts that a greedy verify accepts where the target goes on with ``continuation``.

        None where the continuation ends while the draft still agrees: the text
        does not say how far it would have got.
        """
        node, depth = 0, 0
        while True:
            child = self.next_token[node]
            if child == -1:
                return depth
            if depth == len(continuation):
                return None
            while child != -1 and self.tokens[child] != continuation[depth]:
                child = self.next_sibling[child]
            if child == -1:
                return depth
            node, depth = child, depth + 1


@dataclass(frozen=True)
class ObservedRound:
    """What a sampled round leaves for later.

    Attributes:
        outputs: tokens of the answer when it was drafted; the last one is the bonus token.
        position: context length.
        hidden: [hidden_size], what a router reads.
        entropy: nats; top1: probability of the best token.
        recent: mean acceptance length of the request's last rounds by drafter, where it had any.
        drafts: each drafter's tree.
    """

    outputs: int
    position: int
    hidden: torch.Tensor
    entropy: float
    top1: float
    recent: dict[str, float]
    drafts: dict[str, Tree] = field(default_factory=dict)

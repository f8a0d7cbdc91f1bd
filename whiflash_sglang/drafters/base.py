"""What the worker asks of a drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from whiflash_sglang.rounds import ContextRows


@dataclass(frozen=True)
class VerifyShape:
    """What a verify's attention backend and graphs are built for.

    Attributes:
        width: rows per request, the root included.
        topk: branching factor of the tree; 1 for a chain.
        depth: longest drafted path, the root excluded.
    """

    width: int
    topk: int
    depth: int


Activate = Callable[[VerifyShape], None]


class Drafter(Protocol):
    """One model that proposes a tree per request and keeps its own K/V of the context.

    Its K/V pool shares the target's slots. The K/V of a committed position follow
    from that position's :class:`ContextRows` row and nothing else, so they can be
    written at any time, by themselves (``write_context``).
    """

    name: str
    shapes: tuple[VerifyShape, ...]  # of all trees it may draft, the widest last
    needs_last_row: bool  # whether a draft starts from the output at the last committed row
    expected: (
        torch.Tensor | None
    )  # float32 [requests], acceptance lengths the last draft promises; None: unknown

    @property
    def runner(self) -> Any:
        """The draft's ModelRunner."""

    def alloc_memory_pool(self, **pools: Any) -> None:
        """Allocate the draft K/V pool beside the target's."""

    def init_attention_backends(self) -> None:
        """Build attention backends."""

    def init_cuda_graphs(self) -> None:
        """Capture what can be captured on this device."""

    def write_context(self, rows: ContextRows) -> None:
        """Write the K/V of these rows: no attention, no MLP, no head."""

    def begin(self, batch: Any, last: ContextRows) -> None:
        """Run each request's last committed row in full and keep what the next draft starts from.

        Called right before ``draft`` where ``needs_last_row`` holds.

        Args:
            last: one row per request; the K/V of all rows before it are written.
        """

    def draft(self, batch: Any, activate: Activate) -> Any:
        """Propose a tree, an ``EagleVerifyInput``.

        Args:
            activate: called with the tree's shape before the input is built, since SGLang lays
                the tree's mask into buffers of the attention backend that will verify it.
        """

"""What the worker asks of a drafter."""

from __future__ import annotations

from typing import Any, Protocol

from whiflash_sglang.rounds import ContextRows


class Drafter(Protocol):
    """One model that proposes a tree per request and keeps its own K/V of the context.

    Its K/V pool shares the target's slots. The K/V of a committed position follow
    from that position's :class:`ContextRows` row and nothing else, so they can be
    written at any time, by themselves (``write_context``).
    """

    name: str
    width: int  # verify rows per request, root included
    topk: int  # branching factor of its trees; 1 for a chain
    depth: int  # longest drafted path, root excluded
    needs_last_row: bool  # whether a draft starts from the output at the last committed row

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

    def draft(self, batch: Any) -> Any:
        """Propose a tree: an ``EagleVerifyInput`` of ``width`` rows per request."""

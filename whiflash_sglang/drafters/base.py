"""What the worker asks of a drafter."""

from __future__ import annotations

from typing import Any, Protocol

from whiflash_sglang.rounds import CommittedRows


class Drafter(Protocol):
    """One model that proposes a tree per request and keeps its own K/V of the context.

    Its K/V pool shares the target's slots. A drafter is up to date for a batch
    when the slots of all committed positions hold its K/V.
    """

    name: str
    width: int  # verify rows per request, root included
    topk: int  # branching factor of its trees; 1 for a chain
    depth: int  # longest drafted path, root excluded

    def alloc_memory_pool(self, **pools: Any) -> None:
        """Allocate the draft K/V pool beside the target's."""

    def init_attention_backends(self, commit_width: int) -> None:
        """Build attention backends; commits will have ``commit_width`` rows per request."""

    def init_cuda_graphs(self, commit_width: int) -> None:
        """Capture what can be captured on this device."""

    def prefill(self, batch: Any, captured: Any, next_tokens: Any, kv_loc_plan: Any) -> None:
        """Bring the drafter up to date for a prompt chunk."""

    def commit(self, batch: Any, rows: CommittedRows) -> None:
        """Bring the drafter up to date for the rows that a verify accepted."""

    def draft(self, batch: Any) -> Any:
        """Propose a tree: an ``EagleVerifyInput`` of ``width`` rows per request."""

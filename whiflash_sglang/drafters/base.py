"""What the worker asks of a drafter."""

from __future__ import annotations

from typing import Any, Protocol

from whiflash_sglang.rounds import CommittedRows


class Drafter(Protocol):
    """One model that proposes a tree per request and keeps its own K/V of the context.

    Its K/V pool shares the target's slots. A drafter is up to date for a batch
    when the slots of all committed positions hold its K/V and ``state`` (SGLang's
    ``EagleDraftInput``, which follows the requests through the batch) holds what
    it needs to start the next draft.
    """

    name: str
    width: int  # verify rows per request, root included
    topk: int  # branching factor of its trees; 1 for a chain
    depth: int  # longest drafted path, root excluded

    @property
    def runner(self) -> Any:
        """The draft's ModelRunner."""

    def alloc_memory_pool(self, **pools: Any) -> None:
        """Allocate the draft K/V pool beside the target's."""

    def init_attention_backends(self, commit_width: int) -> None:
        """Build attention backends; commits will have ``commit_width`` rows per request."""

    def init_cuda_graphs(self, commit_width: int) -> None:
        """Capture what can be captured on this device."""

    def prefill(self, batch: Any, captured: Any, state: Any, kv_loc_plan: Any) -> None:
        """Bring the drafter up to date for a prompt chunk.

        Args:
            captured: [tokens, union * hidden_size], the target's captured states of the chunk.
            state: its ``bonus_tokens`` are the target's tokens after the chunk.
            kv_loc_plan: SGLang's plan of the slots that the target's prefill wrote.
        """

    def commit(self, batch: Any, rows: CommittedRows, state: Any) -> None:
        """Bring the drafter up to date for the rows that a verify accepted."""

    def skip(self, state: Any) -> None:
        """Take no part in the run, but leave ``state`` whole."""

    def draft(self, batch: Any) -> Any:
        """Propose a tree: an ``EagleVerifyInput`` of ``width`` rows per request."""

"""The drafter that drafts nothing: a round of width 1 is a step of plain decoding."""

from __future__ import annotations

from typing import Any

import torch

from whiflash_sglang.drafters.base import Activate, VerifyShape
from whiflash_sglang.drafters.chain import chain_verify_input


class PlainDrafter:
    """Verifies the bonus token alone; has no model and no K/V of its own."""

    name = "plain"
    shapes: tuple[VerifyShape, ...] = (VerifyShape(width=1, topk=1, depth=0),)
    needs_last_row = False
    expected: torch.Tensor | None = None

    def __init__(self, target_worker: Any) -> None:
        self._target_worker = target_worker

    def draft(self, batch: Any, activate: Activate) -> Any:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        activate(self.shapes[-1])
        nothing = torch.empty((len(batch.seq_lens), 0), dtype=torch.int64, device=batch.device)
        return chain_verify_input(batch, nothing, self._target_worker)

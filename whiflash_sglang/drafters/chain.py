"""Verify inputs for chains, and for the round that drafts nothing."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative.eagle_utils import default_tree_mask_mode
from sglang.srt.speculative.eagle_worker_common import build_eagle_verify_input


def chain_verify_input(batch: Any, draft_tokens: torch.Tensor, target_worker: Any) -> Any:
    """An ``EagleVerifyInput`` of the bonus token followed by a chain.

    Args:
        batch: SGLang's ScheduleBatch; its ``spec_info.bonus_tokens`` are the roots.
        draft_tokens: int64 [requests, depth]; depth 0 verifies the roots alone.
        target_worker: the target whose attention backend lays out the mask.
    """
    bs, depth = draft_tokens.shape
    device = draft_tokens.device
    # EAGLE's bookkeeping of a top-1 draft: candidate i is the child of candidate i - 1.
    parents = torch.arange(-1, max(depth - 1, 0), device=device)[: depth if depth > 1 else 0]
    order = torch.arange(depth, device=device)
    return build_eagle_verify_input(
        batch,
        batch.spec_info,
        parents.repeat(bs, 1),
        order.repeat(bs, 1),
        draft_tokens,
        None,
        target_worker=target_worker,
        topk=1,
        num_steps=depth,
        num_draft_tokens=depth + 1,
        tree_mask_mode=default_tree_mask_mode(),
        device=device,
    )

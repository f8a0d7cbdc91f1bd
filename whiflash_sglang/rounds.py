"""Rows of committed context, as drafters read them, and the slots that a round writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_uniform_func


@dataclass(frozen=True)
class ContextRows:
    """Committed positions of one request or many, in any order.

    Attributes:
        features: [n, union * hidden_size], the target's captured states at each position.
        next_tokens: int64 [n], the token after each position.
        positions: int64 [n].
        plan: SGLang's ``KVLocPlan`` that writes these positions' slots.
    """

    features: torch.Tensor
    next_tokens: torch.Tensor
    positions: torch.Tensor
    plan: Any

    def __len__(self) -> int:
        return self.positions.shape[0]

    def slots(self, runner: Any) -> torch.Tensor:
        """int64 [n], the rows' slots in a ModelRunner's K/V pool."""
        return self.plan.write_ids(runner.kv_index_translator)


def prompt_rows(batch: Any, captured: torch.Tensor, tails: torch.Tensor, plan: Any) -> ContextRows:
    """The rows of a prompt chunk of every request.

    Args:
        batch: SGLang's ScheduleBatch of the chunk.
        captured: [tokens, union * hidden_size], the target's captured states.
        tails: int64 [requests], the token after each request's chunk.
        plan: the ``KVLocPlan`` of the target's prefill.
    """
    ends = torch.as_tensor(batch.extend_lens, device=captured.device).cumsum(0)
    next_tokens = batch.input_ids.roll(-1).to(torch.int64)
    next_tokens[ends - 1] = tails.to(torch.int64)
    spans = zip(batch.prefix_lens, batch.extend_lens, strict=True)
    positions = torch.cat([torch.arange(prefix, prefix + extend) for prefix, extend in spans])
    return ContextRows(captured, next_tokens, positions.to(captured.device), plan)


def window_plan(batch: Any, width: int, target_worker: Any) -> Any:
    """SGLang's ``KVLocPlan`` of the ``width`` slots after each request's length."""
    translator = target_worker.model_runner.kv_index_translator
    slots = assign_extend_cache_locs_uniform_func(
        req_pool_indices=batch.req_pool_indices,
        req_to_token=translator.req_to_token,
        start_offset=batch.seq_lens,
        batch_size=len(batch.seq_lens),
        draft_token_num=width,
        device=batch.device,
    )
    return translator.plan(
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens_cpu,
        write_virtual=slots,
        read_extent=width,
    )


def window_positions(seq_lens: torch.Tensor, width: int) -> torch.Tensor:
    """int64 [requests * width]: seq_len, seq_len + 1, ... of every request."""
    offsets = torch.arange(width, device=seq_lens.device)
    return (seq_lens.to(torch.int64).unsqueeze(1) + offsets).flatten()

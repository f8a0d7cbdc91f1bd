"""What one round hands from the verify to the drafters, whichever drafter proposed the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_uniform_func


@dataclass(frozen=True)
class CommittedRows:
    """The accepted path of every request, at one width for all rounds.

    Row j of request b belongs to position ``seq_lens[b] + j``. Rows at and
    past ``lens[b]`` hold anything: what is computed from them lands in slots
    past the request's length and is written again before it is read.

    Attributes:
        next_tokens: int64 [requests, width], the token after row j.
        features: [requests, width, union * hidden_size], captured target states of row j.
        lens: int32 [requests], accepted rows, at least 1 (the root is always one).
        window: SGLang's ``KVLocPlan`` of the slots of all rows.
    """

    next_tokens: torch.Tensor
    features: torch.Tensor
    lens: torch.Tensor
    window: Any

    @property
    def width(self) -> int:
        """Rows per request."""
        return self.next_tokens.shape[1]

    @classmethod
    def from_verify(cls, result: Any, verify_width: int, width: int, window: Any) -> CommittedRows:
        """Take the accepted path, already moved to the front of each request's rows, out of a verify result.

        Args:
            result: SGLang's ``GenerationBatchResult`` of ``run_eagle_verify``.
            verify_width: rows per request of that verify.
            width: rows per request here; at least the longest accepted path.
            window: see :func:`window_plan`, for ``width`` rows.
        """
        bs = result.accept_lens.shape[0]
        tokens = result.next_token_ids.to(torch.int64).view(bs, verify_width)
        features = result.logits_output.hidden_states.view(bs, verify_width, -1)
        return cls(_fit(tokens, width), _fit(features, width), result.accept_lens, window)


def _fit(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Cut or zero-pad dimension 1 to ``width``."""
    have = rows.shape[1]
    if have >= width:
        return rows[:, :width]
    padding = rows.new_zeros((rows.shape[0], width - have, *rows.shape[2:]))
    return torch.cat([rows, padding], dim=1)


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

"""The target's embedding and head, as the block drafter uses them."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.models.dflash import candidate_topk


class TargetVocabulary:
    """Embeds tokens, and finds the head's best token, through the target's own modules."""

    def __init__(self, target_model: Any) -> None:
        self._embedding = target_model.get_input_embeddings()
        self._head = target_model.lm_head
        scale = getattr(target_model, "get_dflash_noise_embedding_scale", lambda: 1.0)
        self._embedding_scale = float(scale())

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[n, hidden_size] of token ids int64 [n], in the target's dtype."""
        embedded = self._embedding(token_ids)
        return embedded if self._embedding_scale == 1.0 else embedded * self._embedding_scale

    def argmax(self, hidden: torch.Tensor) -> torch.Tensor:
        """Best token ids int64 [n] of hidden [n, hidden_size]; padded vocabulary rows never win."""
        if hidden.shape[0] == 0:
            return torch.empty((0,), dtype=torch.int64, device=hidden.device)
        ids, _, _ = candidate_topk(hidden, self._head, 1)
        return ids.squeeze(-1)

    def top_log_probs(self, hidden: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best token ids, int64 [n, k], and their log-probabilities, float32 [n, k], best first."""
        ids, logits, log_normaliser = candidate_topk(hidden, self._head, k, with_partition=True)
        assert log_normaliser is not None
        return ids, logits.float() - log_normaliser.unsqueeze(-1)


def logits_processor_of(target_model: Any) -> LogitsProcessor:
    """The target's one logits processor.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = [m for m in target_model.modules() if isinstance(m, LogitsProcessor)]
    if len(found) != 1:
        raise ValueError(
            f"{type(target_model).__name__} has {len(found)} logits processors; the router reads the input of one"
        )
    return found[0]

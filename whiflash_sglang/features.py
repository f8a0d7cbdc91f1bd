"""Target features: one union of captured layers for both drafters, and the router's tap.

SGLang captures one list of layers per target and returns the states
concatenated in layer order. Each drafter reads its own layers, in its own
order, from that one capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from whiflash_kernels.row_entropy import row_entropy


def union_of(*layer_lists: Sequence[int]) -> list[int]:
    """All layer ids, ascending and once each: what the target captures."""
    return sorted({layer for layers in layer_lists for layer in layers})


class FeatureColumns:
    """Picks one drafter's layers out of the union capture."""

    def __init__(self, layers: Sequence[int], union: Sequence[int], hidden_size: int) -> None:
        self._hidden_size = hidden_size
        self._positions = [list(union).index(layer) for layer in layers]
        self._is_whole = self._positions == list(range(len(union)))

    def __call__(self, captured: torch.Tensor) -> torch.Tensor:
        """[rows, union * hidden] -> [rows, layers * hidden], in the drafter's order."""
        if self._is_whole:
            return captured
        by_layer = captured.view(captured.shape[0], -1, self._hidden_size)
        return by_layer[:, self._positions].reshape(captured.shape[0], -1)


class TargetTap:
    """Copies what the router reads out of each target forward into fixed buffers.

    The final hidden state is the input of the target's logits processor (with
    layer capture on, its output carries only the captured layers); the entropy
    is taken from that processor's output, before sampling changes the logits in
    place. The buffers never move, so that the copies are part of a captured graph.

    Args:
        logits_processor: the target's ``LogitsProcessor``.
        hidden: buffer [max_rows, hidden_size] in the target's dtype, or None.
        entropy: buffer float32 [max_rows], or None.
        top1: buffer float32 [max_rows] for the best token's probability, or None.
    """

    def __init__(
        self,
        logits_processor: torch.nn.Module,
        *,
        hidden: torch.Tensor | None,
        entropy: torch.Tensor | None,
        top1: torch.Tensor | None = None,
    ) -> None:
        self._hidden, self._entropy, self._top1 = hidden, entropy, top1
        if hidden is not None:
            logits_processor.register_forward_pre_hook(self._copy_hidden, with_kwargs=True)
        if entropy is not None or top1 is not None:
            logits_processor.register_forward_hook(self._copy_law)

    def hidden(self, rows: torch.Tensor) -> torch.Tensor | None:
        """Final hidden states [n, hidden_size] of rows int64 [n] of the last target forward."""
        return None if self._hidden is None else self._hidden[rows]

    def entropy(self, rows: torch.Tensor) -> torch.Tensor | None:
        """Entropies in nats, float32 [n], of logits rows int64 [n] of the last target forward."""
        return None if self._entropy is None else self._entropy[rows]

    def top1(self, rows: torch.Tensor) -> torch.Tensor | None:
        """Probabilities of the best token, float32 [n], of logits rows int64 [n] of the last target forward."""
        return None if self._top1 is None else self._top1[rows]

    def _copy_hidden(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[1]
        _copy_rows(hidden, self._hidden, "final hidden states")

    def _copy_law(self, module: torch.nn.Module, args: tuple, output: Any) -> None:
        if output.next_token_logits is not None:
            entropy, top1 = row_entropy(output.next_token_logits)
            if self._entropy is not None:
                _copy_rows(entropy, self._entropy, "entropies")
            if self._top1 is not None:
                _copy_rows(top1, self._top1, "top-1 probabilities")


def _copy_rows(rows: torch.Tensor, buffer: torch.Tensor | None, what: str) -> None:
    assert buffer is not None
    if rows.shape[0] > buffer.shape[0]:
        raise RuntimeError(
            f"a target forward has {rows.shape[0]} rows; the router's buffer of {what} holds {buffer.shape[0]}"
        )
    buffer[: rows.shape[0]].copy_(rows)

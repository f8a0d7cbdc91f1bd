"""What the drafters have not yet read of the committed rows, per request."""

from __future__ import annotations

import torch

from whiflash_kernels.accept_gather import pending_put, pending_take

_ROWS_KEPT = 64


def rows_kept(widest_commit: int) -> int:
    """Rows to keep per request where a round adds up to ``widest_commit``: dozens of rounds, at least two."""
    return max(_ROWS_KEPT, 2 * widest_commit)


class PendingRows:
    """The last ``bound`` committed rows of every request slot: features and the token after.

    A row sits at its position modulo ``bound``, so appending moves nothing. A
    slot that is handed to another request is overwritten from its first row on.

    Args:
        slots: request slots.
        bound: rows kept per slot.
        feature_size: columns of the target's captured states.
    """

    def __init__(
        self, slots: int, bound: int, feature_size: int, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self.bound = bound
        self.size_bytes = self.bytes_needed(slots, bound, feature_size, dtype)
        self._features = torch.zeros((slots, bound, feature_size), dtype=dtype, device=device)
        self._next_tokens = torch.zeros((slots, bound), dtype=torch.int64, device=device)
        self._positions = torch.full((slots, bound), -1, dtype=torch.int64, device=device)

    @staticmethod
    def bytes_needed(slots: int, bound: int, feature_size: int, dtype: torch.dtype) -> int:
        """Device memory of the buffers, in bytes."""
        return slots * bound * (feature_size * dtype.itemsize + 2 * torch.int64.itemsize)

    def put(
        self, slots: torch.Tensor, first: torch.Tensor, features: torch.Tensor, next_tokens: torch.Tensor
    ) -> None:
        """Append rows at positions ``first``, ``first + 1``, ... of each slot.

        Args:
            slots: int64 [n].
            first: int64 [n], the position of the first row.
            features: [n, rows, feature_size]; rows at most ``bound``.
            next_tokens: int64 [n, rows], the token after each row.
        """
        buffers = self._features, self._next_tokens, self._positions
        pending_put(*buffers, slots.to(torch.int64), first.to(torch.int64), features, next_tokens)

    def take(self, slots: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features [n, feature_size] and next tokens int64 [n] at positions int64 [n] of slots int64 [n]."""
        return pending_take(self._features, self._next_tokens, slots, positions)

    def holds(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Whether the row of each position is still there, bool [n]."""
        return self._positions[slots, positions % self.bound] == positions

"""Records of verify rounds, as a response's meta_info holds them."""

from __future__ import annotations

from whiflash_sglang.clock import PARTS
from whiflash_sglang.metrics import Round


def a_round(
    drafter: str,
    accepted: int = 0,
    drafted: int = 7,
    caught_up: int = 1,
    released: int = 0,
    expected: float | None = None,
    **seconds: float,
) -> list:
    """One round of a batch of one; ``seconds`` by part, 0 where not given."""
    parts = [seconds.get(part, 0.0) for part in PARTS]
    return list(Round(drafter, drafted, accepted, 1, caught_up, released, parts, expected))

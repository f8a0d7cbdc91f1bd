"""Where a greedy answer starts to repeat itself: a small model's text loops, and loops are easy to draft."""

from __future__ import annotations

from collections.abc import Sequence

NGRAM = 8
TIMES = 3


def loop_start(output_ids: Sequence[int], n: int = NGRAM, times: int = TIMES) -> int | None:
    """Index of the first token of the earliest n-gram that occurs for the ``times``-th time; None without one.

    Occurrences do not overlap and are counted from the left, as ``str.count``
    does: the smallest i such that ``output_ids[:i + n]`` holds
    ``output_ids[i:i + n]`` that often. A run of equal tokens is therefore a
    loop only once it is ``n * times`` long. Time and memory are O(n * tokens).
    """
    seen: dict[tuple[int, ...], tuple[int, int]] = {}  # n-gram -> (occurrences, end of the last one)
    for i in range(len(output_ids) - n + 1):
        ngram = tuple(output_ids[i : i + n])
        count, end = seen.get(ngram, (0, 0))
        if i < end:
            continue  # overlaps the occurrence counted last
        if count + 1 == times:
            return i
        seen[ngram] = (count + 1, i + n)
    return None

"""Prompts of a benchmark: JSON Lines of ``{"id", "category", "turns"}``."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

DEMO = Path(__file__).parent / "prompts" / "demo.jsonl"


@dataclass(frozen=True)
class Conversation:
    """User turns that are asked one after the other, each after the model's own answer to the last."""

    id: str
    category: str
    turns: tuple[str, ...]


def load_conversations(path: str | Path) -> list[Conversation]:
    """Read a prompts file.

    Raises:
        ValueError: no such file, or a line that is not of the form above; names both.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"--dataset {str(path)!r} is no file (JSON Lines of id, category, turns)")
    found = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            turns = tuple(row["turns"])
            found.append(Conversation(str(row["id"]), str(row["category"]), turns))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"--dataset {str(path)!r}, line {number}: {error!r}") from error
    if not found:
        raise ValueError(f"--dataset {str(path)!r} holds no prompts")
    return found


def sample(conversations: list[Conversation], max_samples: int | None, seed: int) -> list[Conversation]:
    """At most ``max_samples`` conversations per category, chosen by ``seed``, in file order."""
    if max_samples is None:
        return conversations
    order = list(range(len(conversations)))
    random.Random(seed).shuffle(order)
    kept: set[int] = set()
    taken: dict[str, int] = {}
    for i in order:
        category = conversations[i].category
        if taken.get(category, 0) < max_samples:
            taken[category] = taken.get(category, 0) + 1
            kept.add(i)
    return [conversations[i] for i in sorted(kept)]

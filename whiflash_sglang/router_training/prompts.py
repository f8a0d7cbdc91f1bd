"""Prompts to collect rounds on: JSON Lines of turns, JSON Lines of token ids, or a data set of the Hub."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whiflash_sglang.bench.prompts_file import load_conversations
from whiflash_sglang.drafter_training.answers import load_answers


@dataclass(frozen=True)
class Prompt:
    """User turns asked one after the other, or one prompt as token ids already rendered."""

    id: str
    category: str
    turns: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()


def load_prompts(dataset: str, limit: int | None = None) -> list[Prompt]:
    """Prompts of a file or of a Hub data set.

    Args:
        dataset: ``.jsonl`` of id, category, turns; ``.jsonl``/``.jsonl.gz`` of id, category,
            prompt_ids (as ``train_demo_drafters.py generate`` writes); or the name of a Hub data set
            with a ``messages``, ``conversations`` or ``prompt`` column, read as a stream.
        limit: at most so many, the first ones.

    Raises:
        ValueError: nothing of these, or a data set without such a column; names it.
    """
    path = Path(dataset)
    if path.is_file():
        found = _from_file(path)
    elif path.suffix in (".jsonl", ".gz", ".json"):
        raise ValueError(f"--dataset {dataset!r} is no file")
    else:
        found = list(itertools.islice(_from_hub(dataset), limit))
    if not found:
        raise ValueError(f"--dataset {dataset!r} holds no prompts")
    return found[:limit]


def _from_file(path: Path) -> list[Prompt]:
    try:
        return [Prompt(a.id, a.category, ids=tuple(a.prompt_ids)) for a in load_answers([path])]
    except ValueError:
        return [Prompt(c.id, c.category, turns=c.turns) for c in load_conversations(path)]


def _from_hub(name: str) -> Iterator[Prompt]:
    import datasets

    try:
        rows: Iterable[dict[str, Any]] = datasets.load_dataset(name, split="train", streaming=True)
    except Exception as error:  # the library raises a dozen kinds
        raise ValueError(f"--dataset {name!r} is no file, and no data set could be read: {error}") from error
    return prompts_of(name, rows)


def prompts_of(name: str, rows: Iterable[dict[str, Any]]) -> Iterator[Prompt]:
    """The user turns of a data set's rows; rows without any are passed over.

    Raises:
        ValueError: the rows have no column to take turns from; names those they have.
    """
    category = name.rstrip("/").rsplit("/", 1)[-1]
    for number, row in enumerate(rows):
        turns = _turns(name, row)
        if turns:
            yield Prompt(f"{category}-{number}", category, turns=turns)


def _turns(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    for column in ("messages", "conversations"):
        if column in row:
            pairs = [
                (m.get("role") or m.get("from"), m.get("content") or m.get("value")) for m in row[column]
            ]
            return tuple(text for role, text in pairs if role in ("user", "human") and text)
    if "prompt" in row:
        return (row["prompt"],) if isinstance(row["prompt"], str) and row["prompt"] else ()
    raise ValueError(
        f"--dataset {name!r} has the columns {sorted(row)}; one of messages, conversations, prompt is needed"
    )

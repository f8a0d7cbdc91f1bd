"""Training text: the target's own greedy answers, as token ids, in JSON Lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm


@dataclass(frozen=True)
class Answer:
    """One prompt with the target's greedy answer, both as token ids."""

    id: str
    category: str
    prompt_ids: list[int]
    output_ids: list[int]


def load_answers(paths: Sequence[Path]) -> list[Answer]:
    """All answers of some ``.jsonl`` or ``.jsonl.gz`` files, in order.

    Raises:
        ValueError: a line that is not an answer; names file and line.
    """
    return [answer for path in paths for answer in _read(path)]


def _read(path: Path) -> Iterator[Answer]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                yield Answer(row["id"], row["category"], row["prompt_ids"], row["output_ids"])
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}, line {number}: not an answer with id, category, prompt_ids, output_ids ({error})"
                ) from error


def generate(
    model_path: str,
    prompts: Iterable[tuple[str, str, str]],
    output: Path,
    *,
    max_new_tokens: int,
    batch_size: int,
    **engine_arguments: Any,
) -> int:
    """Append the target's greedy answers to ``output``; ids already there are skipped.

    Args:
        model_path: the target.
        prompts: (id, category, user turn).
        output: JSON Lines file, flushed after every batch: a killed run loses one batch.
        max_new_tokens: at most so many tokens an answer.
        batch_size: prompts decoded together.
        engine_arguments: further arguments of ``sglang.Engine``.

    Returns:
        Number of answers written.
    """
    import sglang
    from transformers import AutoTokenizer

    done = _done(output)
    todo = [prompt for prompt in prompts if prompt[0] not in done]
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    engine = sglang.Engine(model_path=model_path, max_running_requests=batch_size, **engine_arguments)
    params = {"temperature": 0, "max_new_tokens": max_new_tokens}
    try:
        with output.open("a", encoding="utf-8") as file, tqdm(total=len(todo), unit="prompt") as bar:
            for start in range(0, len(todo), batch_size):
                batch = todo[start : start + batch_size]
                ids = [_prompt_ids(tokenizer, turn) for _, _, turn in batch]
                results = engine.generate(input_ids=ids, sampling_params=params)
                file.writelines(map(_line, batch, ids, results))
                file.flush()
                bar.update(len(batch))
    finally:
        engine.shutdown()
    return len(todo)


def _done(output: Path) -> set[str]:
    """Ids that are there; a last line that a killed run left half written is cut off."""
    if not output.exists():
        return set()
    text = output.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        output.write_text(whole, encoding="utf-8")
    return {answer.id for answer in _read(output)}


def _line(prompt: tuple[str, str, str], prompt_ids: list[int], result: dict[str, Any]) -> str:
    name, category, _ = prompt
    return json.dumps(asdict(Answer(name, category, prompt_ids, result["output_ids"]))) + "\n"


def _prompt_ids(tokenizer: Any, turn: str) -> list[int]:
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": turn}], add_generation_prompt=True, tokenize=False
    )
    return tokenizer(rendered, add_special_tokens=False).input_ids

"""What drafters learn from: the target's states over prompts and its own answers, computed once, kept on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from whiflash_sglang.drafter_training.answers import Answer

_TOKENS_AT_A_TIME = 2048


@dataclass(frozen=True)
class Text:
    """One prompt and answer with the target's states.

    Attributes:
        ids: int64 [L], prompt then answer.
        prompt_len: tokens of the prompt.
        taps: bfloat16 [L, layers * hidden], outputs after the tapped layers, side by side.
        final: bfloat16 [L, hidden], after the final norm; ``final[p]`` predicts token p + 1.
    """

    ids: torch.Tensor
    prompt_len: int
    taps: torch.Tensor
    final: torch.Tensor


class TargetStates:
    """States of many sequences in one memory-mapped file; item i is a :class:`Text`."""

    def __init__(self, folder: Path, answers: Sequence[Answer]) -> None:
        meta = json.loads((folder / "states.json").read_text())
        self.layers: list[int] = meta["layers"]
        self.hidden_size: int = meta["hidden_size"]
        self._answers = answers
        lengths = [len(a.prompt_ids) + len(a.output_ids) for a in answers]
        if meta["lengths"] != lengths:
            raise ValueError(f"{folder} holds states of other answers; delete it or name another folder")
        self._starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
        self._rows = _mapped(
            folder / "states.bin", self._starts[-1], (len(self.layers) + 1) * self.hidden_size
        )

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, i: int) -> Text:
        answer = self._answers[i]
        rows = self._rows[self._starts[i] : self._starts[i + 1]]
        ids = torch.tensor(answer.prompt_ids + answer.output_ids)
        width = len(self.layers) * self.hidden_size
        return Text(ids, len(answer.prompt_ids), rows[:, :width], rows[:, width:])

    def columns(self, layers: Sequence[int]) -> torch.Tensor:
        """Columns of ``taps`` that hold the outputs after ``layers``, in that order; int64.

        Raises:
            ValueError: a layer that was not recorded.
        """
        if missing := sorted(set(layers) - set(self.layers)):
            raise ValueError(f"--layers names {missing}; the states hold the layers {self.layers}")
        blocks = [self.layers.index(layer) for layer in layers]
        return torch.cat([torch.arange(b * self.hidden_size, (b + 1) * self.hidden_size) for b in blocks])


def compute_states(
    model_path: str, answers: Sequence[Answer], layers: Sequence[int], folder: Path, workers: int = 1
) -> None:
    """Run the target once over every answer and write the states; does nothing where they are complete.

    Args:
        workers: single-threaded processes that share the work; threads of one
            process wait for each other at every layer.
    """
    if (folder / "states.json").exists():
        return
    from transformers import AutoConfig

    lengths = [len(a.prompt_ids) + len(a.output_ids) for a in answers]
    hidden = AutoConfig.from_pretrained(model_path).hidden_size
    folder.mkdir(parents=True, exist_ok=True)
    _mapped(folder / "states.bin", sum(lengths), (len(layers) + 1) * hidden, create=True)
    arguments = (model_path, answers, layers, folder, workers)
    if workers == 1:
        _compute_share(0, *arguments)
    else:
        torch.multiprocessing.spawn(_one_thread, arguments, nprocs=workers)
    meta = {"layers": list(layers), "hidden_size": hidden, "lengths": lengths}
    (folder / "states.json").write_text(json.dumps(meta))


def _one_thread(rank: int, *arguments: Any) -> None:
    torch.set_num_threads(1)
    _compute_share(rank, *arguments)


@torch.no_grad()
def _compute_share(
    rank: int, model_path: str, answers: Sequence[Answer], layers: Sequence[int], folder: Path, workers: int
) -> None:
    from transformers import AutoModelForCausalLM

    target = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.bfloat16).model.eval()
    lengths = [len(a.prompt_ids) + len(a.output_ids) for a in answers]
    starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
    rows = _mapped(folder / "states.bin", starts[-1], (len(layers) + 1) * target.config.hidden_size)
    with tqdm(total=starts[-1], unit="tok", desc="target states", disable=rank > 0) as bar:
        for group in _groups_of_similar_length(lengths)[rank::workers]:
            ids = torch.zeros(len(group), max(lengths[i] for i in group), dtype=torch.int64)
            for row, i in enumerate(group):  # right padding: causal rows before it never see it
                ids[row, : lengths[i]] = torch.tensor(answers[i].prompt_ids + answers[i].output_ids)
            states = target(ids, output_hidden_states=True).hidden_states
            picked = torch.cat([*(states[layer + 1] for layer in layers), states[-1]], dim=-1)
            for row, i in enumerate(group):
                rows[starts[i] : starts[i + 1]] = picked[row, : lengths[i]]
            bar.update(workers * sum(lengths[i] for i in group))


def _groups_of_similar_length(lengths: list[int]) -> list[list[int]]:
    groups: list[list[int]] = [[]]
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups[-1] and (len(groups[-1]) + 1) * lengths[i] > _TOKENS_AT_A_TIME:
            groups.append([])
        groups[-1].append(i)
    return groups


def _mapped(path: Path, rows: int, width: int, create: bool = False) -> torch.Tensor:
    """bfloat16 [rows, width] over a file."""
    if not create and path.stat().st_size != rows * width * 2:
        raise ValueError(f"{path} is {path.stat().st_size} bytes; {rows * width * 2} were expected")
    mapped = torch.from_file(str(path), shared=True, size=rows * width, dtype=torch.bfloat16)
    return mapped.view(rows, width)

"""Sampled rounds on disk: what the target showed, and how far each drafter would have got.

A folder holds ``shard-00000.safetensors``, ... (tensors, and as JSON metadata the
setting and the prompts) and ``round_times.json``. Shards are written whole or not
at all, so an interrupted collection goes on after the prompts that are there.
EAGLE-3 is the positive drafter of every record: dAL = al_pos - al_neg.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from whiflash_sglang.router_training.round_times import RoundTimes

__all__ = [
    "Records",
    "RoundTimes",
    "Setting",
    "done_prompts",
    "list_shards",
    "load",
    "read_shard",
    "write_shard",
]

FORMAT = "whiflash-router-records"
VERSION = 1
_NEGATIVES = {"df-e3": "dflash", "ddt-e3": "ddtree"}
_DTYPES = {
    "hidden": torch.bfloat16,
    "entropy": torch.float32,
    "top1": torch.float32,
    "recent_pos": torch.float32,
    "recent_neg": torch.float32,
    "al_pos": torch.float32,
    "al_neg": torch.float32,
    "prompt": torch.int64,
    "position": torch.int64,
}
_FINITE = ("hidden", "entropy", "top1", "al_pos", "al_neg")


@dataclass(frozen=True)
class Setting:
    """What the rounds were sampled with. Only records of equal settings are trained on together.

    Raises:
        ValueError: an unknown pair, or drafters that do not belong to it.
    """

    target: str
    pair: str  # "df-e3" or "ddt-e3"
    positive: str  # "eagle3"
    negative: str  # "dflash" or "ddtree"
    tree_budget: int | None
    hidden_size: int
    eagle_draft: str
    dflash_draft: str
    eagle_tree: tuple[int, int, int]  # steps, top-k, tokens with the root
    block_size: int
    dtype: str
    max_new_tokens: int
    sample_every: int
    hidden_state: str = "post_norm"

    def __post_init__(self) -> None:
        expected = ("eagle3", _NEGATIVES.get(self.pair))
        if (self.positive, self.negative) != expected:
            raise ValueError(
                f"the pair {self.pair!r} with the positive drafter {self.positive!r} and the negative "
                f"{self.negative!r} is none of {[('eagle3', n, p) for p, n in _NEGATIVES.items()]}"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self) | {"eagle_tree": list(self.eagle_tree)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Setting:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: missing or unknown fields, by name.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        missing, unknown = sorted(known - set(values)), sorted(set(values) - known)
        if missing or unknown:
            raise ValueError(f"the setting of a shard lacks {missing} and has the unknown {unknown}")
        return cls(**values | {"eagle_tree": tuple(values["eagle_tree"])})

    def differences(self, other: Setting) -> list[str]:
        """``"field: ours / theirs"`` for each field that differs."""
        ours, theirs = self.to_json(), other.to_json()
        return [f"{name}: {ours[name]!r} / {theirs[name]!r}" for name in ours if ours[name] != theirs[name]]


@dataclass(eq=False)
class Records:
    """n sampled rounds, and the prompts they come from.

    ``prompts`` also names prompts that gave no round: they count as done.

    Attributes:
        hidden: bfloat16 [n, H], the target's final hidden state after the final norm.
        entropy: float32 [n], of the target's next-token law, in nats.
        top1: float32 [n], probability of its best token.
        recent_pos: float32 [n], mean acceptance length of the request's last rounds by the
            positive drafter; NaN where it had none yet.
        recent_neg: float32 [n], the same by the negative drafter.
        al_pos: float32 [n], 1 + accepted drafts had the positive drafter drafted.
        al_neg: float32 [n], the same for the negative drafter.
        prompt: int64 [n], index into ``prompts``.
        position: int64 [n], context length.
        prompts: ids of the prompts.
        categories: of each prompt.
    """

    hidden: torch.Tensor
    entropy: torch.Tensor
    top1: torch.Tensor
    recent_pos: torch.Tensor
    recent_neg: torch.Tensor
    al_pos: torch.Tensor
    al_neg: torch.Tensor
    prompt: torch.Tensor
    position: torch.Tensor
    prompts: list[str]
    categories: list[str]

    def __len__(self) -> int:
        return len(self.hidden)

    @property
    def delta(self) -> torch.Tensor:
        """dAL float32 [n]."""
        return self.al_pos - self.al_neg

    def select(self, which: torch.Tensor) -> Records:
        """The records of a bool mask [n] or of int64 indices; the list of prompts stays whole."""
        return dataclasses.replace(self, **{name: tensor[which] for name, tensor in self.tensors().items()})

    def of_category(self, category: str) -> torch.Tensor:
        """bool [n]: whose prompt is of this category."""
        wanted = torch.tensor([c == category for c in self.categories], dtype=torch.bool)
        return wanted[self.prompt]

    @property
    def seen_categories(self) -> list[str]:
        """Categories that have records, sorted."""
        return sorted({self.categories[i] for i in self.prompt.unique().tolist()})

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor by its name."""
        return {name: getattr(self, name) for name in _DTYPES}

    @classmethod
    def concat(cls, parts: Sequence[Records]) -> Records:
        """All records of ``parts``, in order; a prompt id that recurs becomes one prompt.

        Raises:
            ValueError: no parts, other hidden sizes, or one prompt id with two categories.
        """
        sizes = {part.hidden.shape[1] for part in parts}
        if len(sizes) != 1:
            raise ValueError(f"records of hidden sizes {sorted(sizes)} cannot be joined; one size is needed")
        categories: dict[str, str] = {}
        for prompt, category in (
            (p, c) for part in parts for p, c in zip(part.prompts, part.categories, strict=True)
        ):
            if categories.setdefault(prompt, category) != category:
                raise ValueError(f"prompt {prompt!r} is both of {categories[prompt]!r} and of {category!r}")
        place = {prompt: i for i, prompt in enumerate(categories)}
        tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in _DTYPES}
        tensors["prompt"] = torch.cat(
            [torch.tensor([place[p] for p in part.prompts], dtype=torch.int64)[part.prompt] for part in parts]
        )
        return cls(**tensors, prompts=list(categories), categories=list(categories.values()))

    def check(self, where: str, hidden_size: int) -> None:
        """Refuse tensors that are not as the class says.

        Raises:
            ValueError: ``where``, the tensor, and what is wrong with it.
        """
        n = len(self)
        for name, tensor in self.tensors().items():
            shape = (n, hidden_size) if name == "hidden" else (n,)
            if tensor.dtype != _DTYPES[name] or tuple(tensor.shape) != shape:
                raise ValueError(
                    f"{where}: {name} is {tensor.dtype} {list(tensor.shape)}; expected {_DTYPES[name]} {list(shape)}"
                )
            if name in _FINITE and not bool(tensor.isfinite().all()):
                raise ValueError(f"{where}: {name} holds values that are not finite")
        if n and not min(float(self.al_pos.min()), float(self.al_neg.min())) >= 1:
            raise ValueError(f"{where}: an acceptance length is below 1")
        if len(self.prompts) != len(self.categories):
            raise ValueError(f"{where}: {len(self.prompts)} prompts, {len(self.categories)} categories")
        if n and (int(self.prompt.min()) < 0 or int(self.prompt.max()) >= len(self.prompts)):
            raise ValueError(f"{where}: a prompt index lies outside the {len(self.prompts)} prompts")


def write_shard(folder: Path, index: int, records: Records, setting: Setting) -> Path:
    """Write ``shard-<index>.safetensors`` whole or not at all; the folder is made.

    Raises:
        ValueError: records that are not as :class:`Records` says.
    """
    path = Path(folder) / f"shard-{index:05d}.safetensors"
    records.check(str(path), setting.hidden_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "setting": json.dumps(setting.to_json()),
        "prompts": json.dumps(records.prompts),
        "categories": json.dumps(records.categories),
    }
    unfinished = path.with_name(f".{path.name}.tmp")
    save_file({k: t.cpu().contiguous() for k, t in records.tensors().items()}, unfinished, metadata)
    os.replace(unfinished, path)
    return path


def list_shards(folder: Path) -> list[Path]:
    """The folder's shards, in order; none where there is no folder."""
    return sorted(Path(folder).glob("shard-*.safetensors"))


def read_shard(path: Path) -> tuple[Records, Setting]:
    """One shard's records and setting.

    Raises:
        ValueError: names the file: corrupt, not a shard, or of another format version.
    """
    setting, prompts, categories, tensors = _open(Path(path), list(_DTYPES))
    records = Records(**tensors, prompts=prompts, categories=categories)
    records.check(str(path), setting.hidden_size)
    return records, setting


def load(*folders: Path) -> tuple[Records, Setting]:
    """All records of one or more folders.

    Raises:
        ValueError: a folder without shards, shards of different settings (the
            fields are named), or a shard :func:`read_shard` refuses.
    """
    parts: list[Records] = []
    first: tuple[Path, Setting] | None = None
    for folder in folders:
        shards = list_shards(folder)
        if not shards:
            raise ValueError(f"{folder} (--data) holds no shard-*.safetensors")
        for path in shards:
            records, setting = read_shard(path)
            first = first or (path, setting)
            if different := first[1].differences(setting):
                raise ValueError(f"{first[0]} and {path} differ in {'; '.join(different)}")
            parts.append(records)
    if first is None:
        raise ValueError("--data names no folder")
    return Records.concat(parts), first[1]


def done_prompts(folder: Path) -> set[str]:
    """Ids of the prompts that the folder's shards cover, read without their tensors.

    Raises:
        ValueError: a shard that cannot be read, by name.
    """
    return {prompt for path in list_shards(folder) for prompt in _open(path, [])[1]}


def _open(path: Path, names: Iterable[str]) -> tuple[Setting, list[str], list[str], dict[str, torch.Tensor]]:
    """A shard's setting, prompts, categories, and the tensors asked for."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            found = (metadata.get("format"), metadata.get("version"))
            if found == (FORMAT, str(VERSION)):
                tensors = {name: file.get_tensor(name) for name in names}
                setting = Setting.from_json(json.loads(metadata["setting"]))
                return setting, json.loads(metadata["prompts"]), json.loads(metadata["categories"]), tensors
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a shard of records: {error}") from error
    raise ValueError(
        f"{path} is of format {found[0]!r}, version {found[1]!r}; this reads {FORMAT!r}, version {VERSION}"
    )

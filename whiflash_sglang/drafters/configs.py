"""What a drafter's config.json must say, read and checked before any weight is loaded.

Layouts: SGLang 0.5.23 ``models/llama_eagle3.py`` and ``models/dflash.py``, and
the published checkpoints of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whiflash_sglang.config import WhiflashConfig, flag_of
from whiflash_sglang.features import union_of


@dataclass(frozen=True)
class TargetShape:
    """What a drafter must agree with: layers, hidden size, vocabulary rows and dtype of the target."""

    path: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: str = "bfloat16"

    @classmethod
    def of(cls, path: str, hf_config: Any) -> TargetShape:
        """From a target's (text) config."""
        text = hf_config.get_text_config()
        dtype = str(text.dtype).removeprefix("torch.")
        return cls(path, text.num_hidden_layers, text.hidden_size, text.vocab_size, dtype)


@dataclass(frozen=True)
class DFlashShape:
    """A DFlash draft's block, mask token and the target layers it reads, in its own order."""

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_layers: int
    max_positions: int | None
    kv_row: int  # K/V elements per token of one layer: kv heads * head_dim


@dataclass(frozen=True)
class Eagle3Shape:
    """An EAGLE-3 draft's vocabulary and the target layers it reads, in its own order."""

    draft_vocab_size: int
    target_layer_ids: tuple[int, ...]
    max_positions: int | None


@dataclass(frozen=True)
class Drafts:
    """Both drafters' configs, read and checked against the target's."""

    target: TargetShape
    dflash: DFlashShape
    eagle3: Eagle3Shape
    dflash_config: Any  # Hugging Face configs
    eagle3_config: Any

    @property
    def captured_layers(self) -> list[int]:
        """The layers the target captures: both drafters', ascending and once each."""
        return union_of(self.dflash.target_layer_ids, self.eagle3.target_layer_ids)

    @property
    def feature_size(self) -> int:
        """Columns of one captured row."""
        return len(self.captured_layers) * self.target.hidden_size


def read_drafts(args: Any, config: WhiflashConfig) -> Drafts:
    """Read the three configs of a run.

    Args:
        args: SGLang's arguments (``model_path``, ``revision``, ``trust_remote_code``).

    Raises:
        ValueError: a config that is missing or does not fit, by flag and values.
    """
    assert config.dflash_draft  # WhiflashConfig.validate
    assert config.eagle_draft
    trust = args.trust_remote_code
    target_config = read_hf_config(args.model_path, args.revision, "--model-path", trust)
    target = TargetShape.of(args.model_path, target_config)
    dflash_config = read_hf_config(
        config.dflash_draft, config.dflash_draft_revision, flag_of("dflash_draft"), trust
    )
    eagle3_config = read_hf_config(
        config.eagle_draft, config.eagle_draft_revision, flag_of("eagle_draft"), trust
    )
    return Drafts(
        target=target,
        dflash=dflash_shape(config.dflash_draft, dflash_config, target),
        eagle3=eagle3_shape(config.eagle_draft, eagle3_config, target),
        dflash_config=dflash_config,
        eagle3_config=eagle3_config,
    )


def read_hf_config(path: str, revision: str | None, flag: str, trust_remote_code: bool = False) -> Any:
    """A draft's Hugging Face config.

    Raises:
        ValueError: nothing readable at ``path``; names the flag.
    """
    from sglang.srt.utils.hf_transformers.config import get_config

    try:
        return get_config(path, trust_remote_code=trust_remote_code, revision=revision)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{flag} {path!r}: no model config could be read there ({reason})") from error


def dflash_shape(path: str, hf_config: Any, target: TargetShape) -> DFlashShape:
    """Read and check a DFlash draft's config.

    Raises:
        ValueError: not a DFlash draft, a missing ``block_size``, ``mask_token_id`` or
            ``target_layer_ids`` (they are never guessed), or one that does not fit the target.
    """
    where = f"--speculative-draft-model-path {path!r}"
    _require_architecture(where, hf_config, "DFlashDraftModel", "--whiflash-eagle-draft")
    nested = getattr(hf_config, "dflash_config", None) or {}

    def needed(name: str) -> Any:
        value = nested.get(name, getattr(hf_config, name, None))
        if value is None:
            raise ValueError(f"{where}: its config.json has no {name} (looked in dflash_config too)")
        return value

    _require_hidden_size(where, hf_config, target)
    layer_ids = _layer_ids(where, needed("target_layer_ids"), target)
    mask_token_id = int(needed("mask_token_id"))
    if not 0 <= mask_token_id < target.vocab_size:
        raise ValueError(
            f"{where}: mask_token_id {mask_token_id} is outside the target's vocabulary of {target.vocab_size}"
        )
    block_size = int(needed("block_size"))
    if block_size < 1:
        raise ValueError(f"{where}: block_size is {block_size}; at least 1 is needed")
    return DFlashShape(
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=layer_ids,
        num_layers=int(hf_config.num_hidden_layers),
        max_positions=getattr(hf_config, "max_position_embeddings", None),
        kv_row=_kv_row(hf_config),
    )


def eagle3_shape(path: str, hf_config: Any, target: TargetShape) -> Eagle3Shape:
    """Read and check an EAGLE-3 draft's config.

    Without ``eagle_config.eagle_aux_hidden_state_layer_ids`` the layers are
    SGLang's default, the outputs after layers 1, n/2 - 1 and n - 4.

    Raises:
        ValueError: not an EAGLE-3 draft, or one that does not fit the target.
    """
    where = f"--whiflash-eagle-draft {path!r}"
    _require_architecture(where, hf_config, "Eagle3", "--speculative-draft-model-path")
    _require_target_hidden_size(where, hf_config, target)
    nested = getattr(hf_config, "eagle_config", None) or {}
    if not nested.get("use_aux_hidden_state", True):
        raise ValueError(f"{where}: use_aux_hidden_state is false; EAGLE-3 reads aux hidden states")
    layer_ids = nested.get("eagle_aux_hidden_state_layer_ids") or _default_eagle3_layers(where, target)
    if hf_config.num_hidden_layers != 1:
        raise ValueError(
            f"{where}: num_hidden_layers is {hf_config.num_hidden_layers}; an EAGLE-3 draft has one layer, "
            "whose K/V follow from the target's features alone"
        )
    draft_vocab = getattr(hf_config, "draft_vocab_size", None) or hf_config.vocab_size
    if draft_vocab > target.vocab_size or hf_config.vocab_size > _padded(target.vocab_size):
        raise ValueError(
            f"{where}: vocabulary of {hf_config.vocab_size} (draft {draft_vocab}) does not fit the "
            f"target's {target.vocab_size}"
        )
    return Eagle3Shape(
        draft_vocab_size=int(draft_vocab),
        target_layer_ids=_layer_ids(where, layer_ids, target),
        max_positions=getattr(hf_config, "max_position_embeddings", None),
    )


def _padded(vocab_size: int) -> int:
    """Members of one model family pad one vocabulary to different multiples, 512 at most."""
    return (vocab_size + 511) // 512 * 512


def _kv_row(hf_config: Any) -> int:
    heads = hf_config.num_attention_heads
    head_dim = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // heads
    return int(getattr(hf_config, "num_key_value_heads", heads) * head_dim)


def _require_architecture(where: str, hf_config: Any, wanted: str, other_flag: str) -> None:
    architectures = getattr(hf_config, "architectures", None) or []
    if not any(wanted in name for name in architectures):
        raise ValueError(
            f"{where}: its architectures are {architectures}; a {wanted} draft is needed here "
            f"(the other drafter belongs in {other_flag})"
        )


def _require_hidden_size(where: str, hf_config: Any, target: TargetShape) -> None:
    if hf_config.hidden_size != target.hidden_size:
        raise ValueError(
            f"{where}: hidden_size is {hf_config.hidden_size}, the target's is {target.hidden_size}; "
            "the draft uses the target's embedding and head"
        )


def _require_target_hidden_size(where: str, hf_config: Any, target: TargetShape) -> None:
    reads = getattr(hf_config, "target_hidden_size", None) or hf_config.hidden_size
    if reads != target.hidden_size:
        raise ValueError(
            f"{where}: it reads target features of size {reads}, the target's hidden_size is "
            f"{target.hidden_size}"
        )
    _require_hidden_size(where, hf_config, target)


def _default_eagle3_layers(where: str, target: TargetShape) -> list[int]:
    layers = [1, target.num_layers // 2 - 1, target.num_layers - 4]
    if sorted(set(layers)) != layers or layers[0] < 0:
        raise ValueError(
            f"{where}: no eagle_aux_hidden_state_layer_ids, and the default layers {layers} make no "
            f"sense for a target of {target.num_layers} layers"
        )
    return layers


def _layer_ids(where: str, layer_ids: Sequence[int], target: TargetShape) -> tuple[int, ...]:
    ids = tuple(int(i) for i in layer_ids)
    if not ids:
        raise ValueError(f"{where}: the list of target layer ids is empty")
    # SGLang captures the input of layer i + 1, so the last layer's output is never captured.
    outside = [i for i in ids if not 0 <= i < target.num_layers - 1]
    if outside:
        raise ValueError(
            f"{where}: target layer ids {list(ids)} name {outside}; outputs of layers 0 to "
            f"{target.num_layers - 2} of this {target.num_layers}-layer target can be captured"
        )
    return ids

"""Checks a draft checkpoint's tensors by name and shape before SGLang loads it.

SGLang's loaders skip what a checkpoint lacks; the parameter then keeps its
random start, the server answers, and nothing is ever accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from whiflash_sglang.config import WhiflashConfig
from whiflash_sglang.drafters.configs import Drafts, Eagle3Shape, TargetShape

Shapes = dict[str, tuple[int, ...]]


def check_eagle3(config: WhiflashConfig, drafts: Drafts) -> None:
    """Check an EAGLE-3 draft's tensors, and that ``d2t`` maps into the target's vocabulary.

    Raises:
        ValueError: a tensor is missing or has another shape, or ``d2t`` does not fit.
    """
    where = f"--whiflash-eagle-draft {config.eagle_draft!r}"
    files = _files(where, config.eagle_draft, config.eagle_draft_revision)
    hf_config, shape, target = drafts.eagle3_config, drafts.eagle3, drafts.target
    hidden = hf_config.hidden_size
    wanted: Shapes = {
        "fc.weight": (hidden, len(shape.target_layer_ids) * target.hidden_size),
        "norm.weight": (hidden,),
    }
    if not hf_config.tie_word_embeddings and getattr(hf_config, "draft_vocab_size", None) is not None:
        wanted["lm_head.weight"] = (shape.draft_vocab_size, hidden)
    for i in range(hf_config.num_hidden_layers):
        inputs = 2 * hidden if i == 0 else hidden
        wanted |= _layer(f"layers.{i}", hf_config, inputs, norms=("hidden_norm",))
    found = {_eagle3_name(name): tensor for name, tensor in _tensors(files)}
    _compare(where, wanted, found, hf_config)
    _check_d2t(where, found.get("d2t"), shape, hf_config, target)


def check_dflash(config: WhiflashConfig, drafts: Drafts) -> None:
    """Check a DFlash draft's tensors.

    Raises:
        ValueError: a tensor is missing or has another shape.
    """
    where = f"--speculative-draft-model-path {config.dflash_draft!r}"
    files = _files(where, config.dflash_draft, config.dflash_draft_revision)
    hf_config, shape = drafts.dflash_config, drafts.dflash
    hidden = hf_config.hidden_size
    head_dim = getattr(hf_config, "head_dim", None) or hidden // hf_config.num_attention_heads
    wanted: Shapes = {
        "fc.weight": (hidden, len(shape.target_layer_ids) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for i in range(shape.num_layers):
        wanted |= _layer(f"layers.{i}", hf_config, hidden)
        for name in ("q_norm", "k_norm"):
            wanted[f"layers.{i}.self_attn.{name}.weight"] = (head_dim,)
    found = dict(_dflash_tensors(_tensors(files)))
    _compare(where, wanted, found, hf_config)


def _layer(prefix: str, hf_config: Any, inputs: int, norms: tuple[str, ...] = ()) -> Shapes:
    """Expected tensors of one decoder layer whose attention reads ``inputs`` columns."""
    hidden, inner, heads = hf_config.hidden_size, hf_config.intermediate_size, hf_config.num_attention_heads
    head_dim = getattr(hf_config, "head_dim", None) or hidden // heads
    q_rows = heads * head_dim
    kv_rows = getattr(hf_config, "num_key_value_heads", heads) * head_dim
    shapes: Shapes = {
        f"{prefix}.self_attn.q_proj.weight": (q_rows, inputs),
        f"{prefix}.self_attn.k_proj.weight": (kv_rows, inputs),
        f"{prefix}.self_attn.v_proj.weight": (kv_rows, inputs),
        f"{prefix}.self_attn.o_proj.weight": (hidden, q_rows),
        f"{prefix}.mlp.gate_proj.weight": (inner, hidden),
        f"{prefix}.mlp.up_proj.weight": (inner, hidden),
        f"{prefix}.mlp.down_proj.weight": (hidden, inner),
    }
    for norm in ("input_layernorm", "post_attention_layernorm", *norms):
        shapes[f"{prefix}.{norm}.weight"] = (hidden,)
    return shapes


def _eagle3_name(name: str) -> str:
    return name.removeprefix("model.").replace("midlayer", "layers.0")


def _dflash_tensors(tensors: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    aliases = {
        "encoder.fc.weight": "fc.weight",
        "encoder.output_norm_enc.weight": "hidden_norm.weight",
    }
    for name, tensor in tensors:
        yield aliases.get(name, name.removeprefix("model.")), tensor


def _compare(where: str, wanted: Shapes, found: dict[str, torch.Tensor], hf_config: Any) -> None:
    if getattr(hf_config, "quantization_config", None):
        return  # packed tensors have other names and shapes; SGLang's quantized loader checks them
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ValueError(f"{where}: the checkpoint lacks {', '.join(missing)}")
    wrong = [
        f"{name} is {tuple(found[name].shape)}, expected {shape}"
        for name, shape in wanted.items()
        if tuple(found[name].shape) != shape
    ]
    if wrong:
        raise ValueError(f"{where}: {'; '.join(wrong)}")


def _check_d2t(
    where: str, d2t: torch.Tensor | None, shape: Eagle3Shape, hf_config: Any, target: TargetShape
) -> None:
    size = shape.draft_vocab_size
    if d2t is None:
        if size != hf_config.vocab_size:
            raise ValueError(
                f"{where}: draft_vocab_size is {size} of {hf_config.vocab_size}, but the checkpoint has no d2t"
            )
        return
    if d2t.shape != (size,):
        raise ValueError(f"{where}: d2t is {tuple(d2t.shape)}; draft_vocab_size is {size}")
    target_ids = d2t + torch.arange(size)
    low, high = int(target_ids.min()), int(target_ids.max())
    if low < 0 or high >= target.vocab_size:
        raise ValueError(
            f"{where}: d2t maps draft ids to target ids {low} to {high}; the target has {target.vocab_size} tokens"
        )


def _files(where: str, path: str | None, revision: str | None) -> list[Path]:
    """The checkpoint's weight files, fetched from the Hub where ``path`` is no folder."""
    assert path  # WhiflashConfig.validate
    folder = Path(path)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            patterns = ["*.safetensors", "*.bin", "*.json"]
            folder = Path(snapshot_download(path, revision=revision, allow_patterns=patterns))
        except Exception as error:
            raise ValueError(f"{where} is no folder here and could not be fetched: {error}") from error
    for pattern in ("*.safetensors", "*.bin"):
        files = sorted(folder.glob(pattern))
        if files:
            return files
    raise ValueError(f"{where}: no .safetensors or .bin file in {folder}")


def _tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor by name: small integer ones (d2t) for real, the rest as shapes on the meta device."""
    from safetensors import safe_open

    for file in files:
        if file.suffix == ".bin":
            yield from torch.load(file, map_location="cpu", mmap=True, weights_only=True).items()
            continue
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - safe_open is no mapping
                if name.endswith("d2t"):
                    yield name, weights.get_tensor(name)
                else:
                    yield name, torch.empty(weights.get_slice(name).get_shape(), device="meta")

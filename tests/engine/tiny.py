"""A tiny random Llama with SmolLM2's tokenizer, and drafters for it: real shapes, a millisecond a forward."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from engine import random_drafts
from whiflash_sglang.cache import build_once
from whiflash_sglang.demo.target import demo_target

VERSION = "v5"
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "max_position_embeddings": 1024,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "dtype": "float32",
}


def target() -> Path:
    """Folder of the tiny target."""
    return build_once(f"test-tiny-target-{VERSION}", _write_target)


def eagle3() -> Path:
    """Folder of a random EAGLE-3 draft for it."""
    return build_once(
        f"test-tiny-eagle3-{VERSION}", lambda folder: random_drafts.write_eagle3(folder, target())
    )


def dflash() -> Path:
    """Folder of a random DFlash draft for it."""
    return build_once(
        f"test-tiny-dflash-{VERSION}", lambda folder: random_drafts.write_dflash(folder, target())
    )


def _write_target(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    source = demo_target()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder / name)
    config = LlamaConfig(**{k: v for k, v in SHAPE.items() if k not in ("architectures", "dtype")})
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # large enough that the next token depends on the context
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.normal_(0, 1.0 if "embed" in name else 0.12)
    model.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | SHAPE, indent=2))


def edited(source: Path, folder: Path, config=(), drop=(), tensors=()) -> str:
    """A copy of a draft with config entries set (None removes one) and tensors dropped or replaced."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    saved = json.loads((folder / "config.json").read_text())
    for key, value in dict(config).items():
        at = saved
        *outer, last = key.split(".")
        for part in outer:
            at = at[part]
        if value is None:
            del at[last]
        else:
            at[last] = value
    (folder / "config.json").write_text(json.dumps(saved))
    weights = load_file(folder / "model.safetensors")
    weights = {name: w for name, w in weights.items() if name not in drop} | dict(tensors)
    save_file(weights, folder / "model.safetensors")
    return str(folder)

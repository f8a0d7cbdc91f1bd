"""Drafts on disk: config.json, model.safetensors and a card, as SGLang and the published checkpoints lay them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from whiflash_sglang.drafter_training.dflash import DFlashDraft
from whiflash_sglang.drafter_training.eagle3 import Eagle3Draft
from whiflash_sglang.drafter_training.loop import Curve

_INHERITED = (
    "hidden_size",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "rope_parameters",
    "max_position_embeddings",
    "hidden_act",
    "bos_token_id",
    "eos_token_id",
)


def base_config(target_config: dict[str, Any]) -> dict[str, Any]:
    """The entries of a draft's config.json that are its target's."""
    return {key: target_config[key] for key in _INHERITED} | {
        "tie_word_embeddings": False,
        "attention_bias": False,
        "dtype": "bfloat16",
    }


def save_draft(model: Eagle3Draft | DFlashDraft, folder: Path, curve: Curve, card: str) -> None:
    """Write the draft in bfloat16, its card, and the training curve."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().to(torch.bfloat16).contiguous() for name, value in model.named_parameters()
    }
    if isinstance(model, Eagle3Draft):
        ids = model.draft_ids
        seen = torch.zeros(model.config["vocab_size"], dtype=torch.bool)
        weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": seen.index_fill_(0, ids, True)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config, indent=2) + "\n")
    (folder / "README.md").write_text(card)
    curve.write(folder / "training_curve.json")

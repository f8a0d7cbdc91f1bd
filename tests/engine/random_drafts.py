"""Random drafters of the right shape for a target: every code path runs, almost nothing is accepted.

File layout and names are those of the published checkpoints, as SGLang loads them.
"""

from __future__ import annotations

import json
from pathlib import Path

from whiflash_sglang.drafter_training import dflash, eagle3
from whiflash_sglang.drafter_training.checkpoint import base_config

EAGLE3_LAYERS = (1, 14, 26)
DFLASH_LAYERS = (1, 8, 15, 22, 27)
DRAFT_VOCAB = 8192
BLOCK_SIZE = 8
MASK_TOKEN_ID = 6  # "<filename>": SmolLM2 has no unused row, and text never holds this token


def write_eagle3(folder: Path, target: Path) -> None:
    import torch

    shape = json.loads((target / "config.json").read_text())
    hidden, draft_ids = shape["hidden_size"], torch.arange(DRAFT_VOCAB)
    target_ids = draft_ids * (shape["vocab_size"] // DRAFT_VOCAB)
    weights = {f"midlayer.{k}": v for k, v in _layer(shape, inputs=2 * hidden).items()}
    weights |= {
        "midlayer.hidden_norm.weight": torch.ones(hidden),
        "fc.weight": _random(hidden, len(EAGLE3_LAYERS) * hidden),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": _random(DRAFT_VOCAB, hidden),
        "d2t": target_ids - draft_ids,
        "t2d": torch.zeros(shape["vocab_size"], dtype=torch.bool).index_fill_(0, target_ids, True),
    }
    config = eagle3.draft_config(base_config(shape), list(EAGLE3_LAYERS), DRAFT_VOCAB)
    _save(folder, weights, config)


def write_dflash(folder: Path, target: Path) -> None:
    import torch

    shape = json.loads((target / "config.json").read_text())
    hidden, head_dim, layers = shape["hidden_size"], shape["head_dim"], 2
    weights = {
        "fc.weight": _random(hidden, len(DFLASH_LAYERS) * hidden),
        "hidden_norm.weight": torch.ones(hidden),
        "norm.weight": torch.ones(hidden),
    }
    for i in range(layers):
        weights |= {f"layers.{i}.{k}": v for k, v in _layer(shape, inputs=hidden).items()}
        for name in ("q_norm", "k_norm"):
            weights[f"layers.{i}.self_attn.{name}.weight"] = torch.ones(head_dim)
    config = dflash.draft_config(
        base_config(shape),
        list(DFLASH_LAYERS),
        block_size=BLOCK_SIZE,
        num_layers=layers,
        mask_token_id=MASK_TOKEN_ID,
        target_layers=shape["num_hidden_layers"],
    )
    _save(folder, weights, config)


def _layer(shape: dict, inputs: int) -> dict:
    """Random weights of one decoder layer whose attention reads ``inputs`` columns."""
    import torch

    hidden, inner, head_dim = shape["hidden_size"], shape["intermediate_size"], shape["head_dim"]
    q_rows = shape["num_attention_heads"] * head_dim
    kv_rows = shape["num_key_value_heads"] * head_dim
    return {
        "input_layernorm.weight": torch.ones(hidden),
        "post_attention_layernorm.weight": torch.ones(hidden),
        "self_attn.q_proj.weight": _random(q_rows, inputs),
        "self_attn.k_proj.weight": _random(kv_rows, inputs),
        "self_attn.v_proj.weight": _random(kv_rows, inputs),
        "self_attn.o_proj.weight": _random(hidden, q_rows),
        "mlp.gate_proj.weight": _random(inner, hidden),
        "mlp.up_proj.weight": _random(inner, hidden),
        "mlp.down_proj.weight": _random(hidden, inner),
    }


def _random(rows: int, columns: int):
    import torch

    generator = torch.Generator().manual_seed(rows * 1_000_003 + columns)
    return torch.randn(rows, columns, generator=generator) * columns**-0.5


def _save(folder: Path, weights: dict, config: dict) -> None:
    import torch
    from safetensors.torch import save_file

    stored = {
        name: value.to(torch.bfloat16) if value.is_floating_point() else value
        for name, value in weights.items()
    }
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

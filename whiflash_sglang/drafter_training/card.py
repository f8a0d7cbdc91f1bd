"""The model card of a trained draft: what it is, what it learned from, and what training showed."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from whiflash_sglang.drafter_training.answers import Answer
from whiflash_sglang.drafter_training.loop import Curve

_OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon"}
_HEAD = """---
license: apache-2.0
base_model: {base}
tags: [speculative-decoding, sglang, {tag}]
---

# {kind} draft for {name}

{shape}
"""

_TRAINING = """
## Training

* From {count} of the target's own greedy answers ({tokens} answer tokens: {categories}), each cut soon after
  it starts to repeat itself. The target's states were computed once, in bfloat16.
* Started from the target's last layer(s), its final norm and its head.
* {batch} answers a step, {steps} steps ({passes:.1f} passes) in {minutes:g} minutes on {threads} CPU
  thread(s): {runs}; each run warms up and decays on its own.
* Loss: cross entropy against the target's own law.

| minutes | training loss |{heads}
|---|---|{rules}
{rows}

The acceptance lengths are those of a chain on a few held-out answers of every category, computed without the
engine: they tell how training went, not what a tree in the engine accepts.
The whole curve is in `training_curve.json`.
"""


def draft_card(
    kind: str, model: Any, curve: Curve, args: argparse.Namespace, answers: Sequence[Answer]
) -> str:
    """README.md of a draft folder.

    Args:
        kind: "EAGLE-3" or "DFlash".
        model: the draft, with its ``config``.
        args: the training step's arguments.
        answers: those trained on.
    """
    tokens = Counter[str]()
    for answer in answers:
        tokens[answer.category] += len(answer.output_ids)
    head = _HEAD.format(
        base="HuggingFaceTB/SmolLM2-135M-Instruct" if args.model_path is None else args.model_path,
        name="SmolLM2-135M-Instruct" if args.model_path is None else args.model_path,
        tag=kind.lower().replace("-", ""),
        kind=kind,
        shape=_shape(kind, model),
    )
    categories = sorted({c for _, lengths in curve.held_out for c in lengths})
    return head + _TRAINING.format(
        count=len(answers),
        tokens=f"{tokens.total():,}",
        categories=", ".join(f"{c} {n:,}" for c, n in sorted(tokens.items())),
        batch=args.batch,
        steps=curve.steps,
        passes=curve.sequences_seen / max(len(answers), 1),
        minutes=curve.minutes,
        threads=args.threads,
        runs=", then ".join(
            f"{minutes:g} minutes of {_OPTIMIZERS[optimizer]} at {rate:g} or less"
            for minutes, rate, optimizer in curve.runs
        ),
        heads="".join(f" {c} |" for c in categories),
        rules="---|" * len(categories),
        rows="\n".join(_rows(curve, categories)),
    )


def _shape(kind: str, model: Any) -> str:
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    config = model.config
    if kind == "DFlash":
        dflash = config["dflash_config"]
        return (
            f"`DFlashDraftModel`: {config['num_hidden_layers']} layers, {parameters:.1f} M parameters, blocks of "
            f"{config['block_size']}, reads the target's layers {dflash['target_layer_ids']}, mask token "
            f"{dflash['mask_token_id']}."
        )
    layers = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    return (
        f"`LlamaForCausalLMEagle3`: one layer, {parameters:.1f} M parameters, {config['draft_vocab_size']} draft "
        f"ids, reads the target's layers {layers}."
    )


def _rows(curve: Curve, categories: Sequence[str]) -> list[str]:
    rows = []
    for minutes, lengths in curve.held_out:
        losses = [value for at, _, value in curve.losses if minutes - 1 <= at <= minutes]
        loss = f"{sum(losses) / len(losses):.3f}" if losses else ""
        cells = " | ".join(f"{lengths[c]:.2f}" if c in lengths else "" for c in categories)
        rows.append(f"| {minutes:g} | {loss} | {cells} |")
    return rows

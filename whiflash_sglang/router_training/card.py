"""The model card of a trained router: what it is for, what it learned from, and its figures."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCardData
from huggingface_hub.utils import HFValidationError, validate_repo_id

from whiflash_sglang.router_training.tables import figure_rows, figures, fit_rows
from whiflash_sglang.router_training.train import TrainResult

_CARD = """---
{front_matter}
---

# WHIFLASH router for {target}, {pair}

A two-layer MLP that reads the target's final hidden state (after the final norm) and predicts
dAL = AL(EAGLE-3) - AL({negative}), the difference of the two drafters' acceptance lengths in the next decode
round. Above the threshold of {threshold:.4f} the round goes to EAGLE-3.

## Use it

```bash
sglang serve --model-path {target} --speculative-algorithm WHIFLASH \\
  --speculative-draft-model-path {dflash} \\
  --whiflash-eagle-draft {eagle} \\
  --speculative-num-steps {steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens {tokens} \\
  --whiflash-drafters {pair}{budget} \\
  --whiflash-neural-router-path <this folder or repo id>
```

The threshold is in `config.json`; `--whiflash-neural-router-threshold` overrides it. It belongs to the round
times below: with other hardware or batch sizes, choose it anew.

## Trained for

| | |
|---|---|
| target | {target} |
| EAGLE-3 draft | {eagle} |
| block draft | {dflash}, block {block} |
| EAGLE-3's tree | {steps} steps, top-k {topk}, {tokens} tokens with the root |
| DDTree budget | {budget_cell} |
| target's dtype while sampling | {dtype} |
| new tokens a prompt, at most | {max_new_tokens} |
| sampled | every {sample_every} rounds |
| seconds a round | EAGLE-3 {eagle_time:g}, {negative} {negative_time:g}; plain step {plain_time} |
| network | {width} wide, GELU, {weights} weights; predicted {predict}, {loss} loss |
| training part | {train_prompts} prompts, {train_records} rounds |
| validation part | {val_prompts} prompts, {val_records} rounds |

## Figures

All are of the validation part, which shares no prompt with the training part. They are simulated on sampled
rounds from the round times above: no decoding was timed, and neither the router's own time nor the cost of
switching is in them. Thresholds were chosen on the training part. The validation part also chose when training
stopped{seed_note}, so its figures are slightly flattering.

{tables}

*best drafter per prompt* and *best drafter per round* know the acceptance lengths beforehand; no router does.
The entropy router's threshold is {entropy_threshold:.4f} nats.{rate_note}
"""

_RATE = """

`rate/both_heads.safetensors` holds the network before its two outputs, the acceptance lengths of EAGLE-3 and of
{negative}, were subtracted; the rate router takes the drafter of the larger acceptance length per second."""


def router_card(result: TrainResult) -> str:
    """README.md of a router folder, with the Hub's front matter."""
    setting, options, times = result.setting, result.options, result.times
    steps, topk, tokens = setting.eagle_tree
    budget = setting.tree_budget
    return _CARD.format(
        front_matter=_front_matter(result).to_yaml(),
        target=setting.target,
        pair=setting.pair,
        negative=setting.negative,
        threshold=result.threshold,
        dflash=setting.dflash_draft,
        eagle=setting.eagle_draft,
        steps=steps,
        topk=topk,
        tokens=tokens,
        budget="" if budget is None else f" --ddtree-tree-budget {budget}",
        budget_cell="-" if budget is None else budget,
        block=setting.block_size,
        dtype=setting.dtype,
        max_new_tokens=setting.max_new_tokens,
        sample_every=setting.sample_every,
        eagle_time=times.eagle3,
        negative_time=times.dflash,
        plain_time="not measured" if times.plain is None else f"{times.plain:g}",
        width=options.width,
        weights=options.weights,
        predict="dAL" if options.predict == "delta" else "both acceptance lengths",
        loss=options.loss,
        train_prompts=result.counts["training"][0],
        train_records=result.counts["training"][1],
        val_prompts=result.counts["validation"][0],
        val_records=result.counts["validation"][1],
        seed_note=f" and which of {len(result.runs)} seeds was kept" if len(result.runs) > 1 else "",
        tables="\n\n".join(_markdown(rows) for rows in _tables(result)),
        entropy_threshold=result.entropy_threshold,
        rate_note="" if result.heads is None else _RATE.format(negative=setting.negative),
    )


def _front_matter(result: TrainResult) -> ModelCardData:
    tags = ["speculative-decoding", "sglang", "whiflash", "router", result.setting.pair]
    base = result.setting.target if _is_repo_id(result.setting.target) else None
    return ModelCardData(license="apache-2.0", base_model=base, tags=tags)


def _is_repo_id(name: str) -> bool:
    """Whether the Hub would take this as a base model; a folder here is none."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return not Path(name).exists()


def _tables(result: TrainResult) -> list[list[list[str]]]:
    return [fit_rows(result), *(figure_rows(result, figure) for figure in figures())]


def _markdown(rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (rows[0], rule, *rows[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)

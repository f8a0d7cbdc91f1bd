"""The steps of ``scripts/train_demo_drafters.py``, each from its parsed arguments."""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from whiflash_sglang.bench.loops import loop_start
from whiflash_sglang.drafter_training import dflash as dflash_draft
from whiflash_sglang.drafter_training import eagle3 as eagle3_draft
from whiflash_sglang.drafter_training.answers import Answer, load_answers
from whiflash_sglang.drafter_training.answers import generate as generate_answers
from whiflash_sglang.drafter_training.card import draft_card
from whiflash_sglang.drafter_training.checkpoint import base_config, save_draft
from whiflash_sglang.drafter_training.demo_prompts import coding_prompts, table_prompts
from whiflash_sglang.drafter_training.loop import Curve, Schedule, train
from whiflash_sglang.drafter_training.states import TargetStates, compute_states

_SHORTEST_ANSWER = 6
_LOOP_KEPT = 24
_HELD_OUT = 12  # per category
_DFLASH_DECAY = (
    4.0  # block positions weigh exp(-(k - 1) / 4): a late one counts only if the early ones are right
)


def generate(args: argparse.Namespace) -> None:
    """Write the target's greedy answers."""
    from whiflash_sglang.bench.prompts_file import load_conversations
    from whiflash_sglang.cpu.environment import prepare

    device = prepare(None)
    if args.prompts is not None:
        prompts = [(c.id, c.category, c.turns[0]) for c in load_conversations(str(args.prompts))]
    else:
        prompts = coding_prompts(650) + table_prompts(250)
        random.Random(0).shuffle(prompts)
    written = generate_answers(
        _target(args),
        prompts,
        args.answers,
        max_new_tokens=args.max_new_tokens,
        batch_size=args.batch_size,
        device=device,
        dtype="bfloat16",
        log_level="error",
        disable_overlap_schedule=True,
        max_total_tokens=args.batch_size * (args.max_new_tokens + 1024),
    )
    print(f"{written} answers written to {args.answers}")


def states(args: argparse.Namespace) -> None:
    """Run the target once over the answers."""
    answers = _answers(args.answers)
    compute_states(_target(args), answers, args.layers, args.work, args.workers)
    tokens = Counter[str]()
    for answer in answers:
        tokens[answer.category] += len(answer.output_ids)
    print(f"{len(answers)} answers, tokens by category: {dict(tokens)}")


def eagle3(args: argparse.Namespace) -> None:
    """Train an EAGLE-3 draft."""
    answers, data, target, shape = _prepared(args)
    ids = _most_frequent(answers, args.draft_vocab, shape["vocab_size"])
    config = eagle3_draft.draft_config(base_config(shape), list(args.layers), args.draft_vocab)
    embedding, head = _vocabulary(target)
    model = eagle3_draft.Eagle3Draft(config, ids - torch.arange(len(ids)), embedding, head)
    model.start_from(target, shape["num_hidden_layers"] - 1)
    earlier = _go_on(model, args.start_from)
    columns = data.columns(args.layers)
    _train(
        args, "EAGLE-3", model, lambda batch: model.loss(batch, columns, args.steps), data, answers, earlier
    )


def dflash(args: argparse.Namespace) -> None:
    """Train a DFlash draft."""
    answers, data, target, shape = _prepared(args)
    config = dflash_draft.draft_config(
        base_config(shape),
        list(args.layers),
        block_size=args.block_size,
        num_layers=args.num_layers,
        mask_token_id=args.mask_token_id,
        target_layers=shape["num_hidden_layers"],
    )
    embedding, head = _vocabulary(target)
    ids = _most_frequent(answers, args.trained_ids, shape["vocab_size"])
    model = dflash_draft.DFlashDraft(config, ids, embedding, head)
    model.start_from(target, shape["num_hidden_layers"] - args.num_layers)
    earlier = _go_on(model, args.start_from)
    columns = data.columns(args.layers)
    _train(
        args,
        "DFlash",
        model,
        lambda batch: model.loss(batch, columns, args.anchors, _DFLASH_DECAY),
        data,
        answers,
        earlier,
    )


def _target(args: argparse.Namespace) -> str:
    if args.model_path is not None:
        return args.model_path
    from whiflash_sglang.demo.target import demo_target

    return str(demo_target())


def _answers(paths: list[Path]) -> list[Answer]:
    """All answers long enough to learn from, each cut soon after it starts to repeat itself."""
    answers = [a for a in load_answers(paths) if len(a.output_ids) >= _SHORTEST_ANSWER]
    if not answers:
        raise ValueError(f"no answer of at least {_SHORTEST_ANSWER} tokens in {[str(p) for p in paths]}")
    return [replace(a, output_ids=_cut_loop(a.output_ids)) for a in answers]


def _cut_loop(ids: list[int]) -> list[int]:
    start = loop_start(ids)
    return ids if start is None else ids[: start + _LOOP_KEPT]


def _prepared(args: argparse.Namespace) -> tuple[list[Answer], TargetStates, dict[str, torch.Tensor], dict]:
    torch.set_num_threads(args.threads)
    answers = _answers(args.answers)
    if not (args.work / "states.json").exists():
        raise ValueError(f"--work {args.work} holds no target states; run the step 'states' first")
    folder = Path(_target(args))
    weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    return (
        answers,
        TargetStates(args.work, answers),
        weights,
        json.loads((folder / "config.json").read_text()),
    )


def _vocabulary(target: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The target's embedding and head, bfloat16 [vocab, hidden] each; one tensor where they are tied."""
    embedding = target["model.embed_tokens.weight"].bfloat16()
    head = target.get("lm_head.weight")
    return embedding, embedding if head is None else head.bfloat16()


def _most_frequent(answers: list[Answer], count: int, vocab_size: int) -> torch.Tensor:
    """The ``count`` ids that answers use most, filled up with the lowest others; sorted int64."""
    uses = Counter(i for answer in answers for i in answer.output_ids)
    ids = [i for i, _ in uses.most_common(count)]
    taken = set(ids)
    others = (i for i in range(vocab_size) if i not in taken)
    return torch.tensor(sorted([*ids, *(next(others) for _ in range(count - len(ids)))]))


def _go_on(model: torch.nn.Module, folder: Path | None) -> Curve | None:
    """Take over the weights of an earlier run; its curve."""
    if folder is None:
        return None
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    return Curve.read(folder / "training_curve.json")


def _train(
    args: argparse.Namespace,
    kind: str,
    model: Any,
    loss: Any,
    data: TargetStates,
    answers: list,
    earlier: Curve | None,
) -> None:
    train_rows, held_out = _split(answers)
    schedule = Schedule(
        args.minutes, args.learning_rate, batch=args.batch, seed=args.seed, optimizer=args.optimizer
    )

    def save(curve: Curve) -> None:
        card = draft_card(kind, model, curve, args, [answers[i] for i in train_rows])
        save_draft(model, args.output, curve, card)

    train(model, loss, data, train_rows, held_out, schedule, save, earlier)


def _split(answers: list[Answer]) -> tuple[list[int], dict[str, list[int]]]:
    """Rows to train on, and a few held-out rows of every category: the same ones in every run."""
    by_category: dict[str, list[int]] = {}
    for i, answer in enumerate(answers):
        by_category.setdefault(answer.category, []).append(i)
    rng = random.Random(0)
    held_out = {
        c: sorted(rng.sample(rows, min(_HELD_OUT, len(rows) // 5))) for c, rows in by_category.items()
    }
    kept = {i for rows in held_out.values() for i in rows}
    return [i for i in range(len(answers)) if i not in kept], {
        c: rows for c, rows in held_out.items() if rows
    }

"""What the collecting commands share: flags of the engine and the prompts, and the run they describe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from whiflash_sglang.bench.build import TREE, common_arguments, tree_arguments
from whiflash_sglang.config import DEFAULT_EAGLE_TREE, PAIRS
from whiflash_sglang.router_training.collect import Collected, Plan, collect
from whiflash_sglang.router_training.prompts import load_prompts
from whiflash_sglang.router_training.records import Setting


def add_engine_flags(p: argparse.ArgumentParser) -> None:
    """Flags of the target, its drafters, the prompts and the sampling."""
    p.add_argument("--dataset", required=True, help="JSON Lines of turns or token ids, or a Hub data set.")
    p.add_argument("--limit", type=int, help="At most so many prompts.")
    p.add_argument("--model-name-or-path", help="Target. [default: the embedded demo and its drafters]")
    p.add_argument("--draft-name-or-path", help="DFlash draft.")
    p.add_argument("--whiflash-eagle-draft", help="EAGLE-3 draft.")
    p.add_argument("--whiflash-drafters", choices=PAIRS, default="df-e3", help="[default: df-e3]")
    p.add_argument("--ddtree-tree-budget", type=int, help="Draft nodes of a DDTree; belongs to ddt-e3.")
    for name in TREE:
        p.add_argument("--" + name.replace("_", "-"), type=int, help="Shape of EAGLE-3's tree.")
    p.add_argument("--max-new-tokens", type=int, default=256, help="[default: 256]")
    p.add_argument("--sample-every", type=int, default=2, help="One round in so many. [default: 2]")
    p.add_argument("--concurrency", type=int, default=1, help="Prompts at a time. [default: 1]")
    p.add_argument("--enable-thinking", action="store_true", help="Let the chat template think.")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dtype", help="[default: auto]")
    p.add_argument("--device", choices=["cpu", "cuda"], help="[default: a GPU where there is one]")
    p.add_argument("-v", "--verbose", action="store_true", help="Show SGLang's log.")


def collect_from_flags(args: argparse.Namespace, output: Path, shard_prompts: int) -> Collected:
    """Collect what the flags describe into ``output``; see :func:`~.collect.collect`.

    Raises:
        ValueError: flags that do not fit, by name.
    """
    for name in ("sample_every", "concurrency", "max_new_tokens"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {getattr(args, name)}; at least 1 is needed")
    if shard_prompts < 1:
        raise ValueError(f"--shard-prompts is {shard_prompts}; at least 1 is needed")
    prompts = load_prompts(args.dataset, args.limit)
    if args.model_name_or_path is None:
        _fill_in_demo(args)
    for flag in ("draft_name_or_path", "whiflash_eagle_draft"):
        if getattr(args, flag) is None:
            raise ValueError(f"--{flag.replace('_', '-')} is missing: both drafters draft")
    engine = common_arguments(args) | tree_arguments(args)
    engine["speculative_draft_model_path"] = args.draft_name_or_path
    plan = Plan(
        output,
        shard_prompts=shard_prompts,
        concurrency=args.concurrency,
        seed=args.seed,
        chat={"enable_thinking": args.enable_thinking},
    )
    whiflash = {
        "eagle_draft": args.whiflash_eagle_draft,
        "drafters": args.whiflash_drafters,
        "ddtree_tree_budget": args.ddtree_tree_budget,
    }
    return collect(prompts, _setting(args), plan, engine, whiflash)


def _setting(args: argparse.Namespace) -> Setting:
    from whiflash_sglang.drafters.configs import TargetShape, dflash_shape, read_hf_config

    target_config = read_hf_config(args.model_name_or_path, None, "--model-name-or-path")
    target = TargetShape.of(args.model_name_or_path, target_config)
    draft = read_hf_config(args.draft_name_or_path, None, "--draft-name-or-path")
    tree = [getattr(args, name) or default for name, default in zip(TREE, DEFAULT_EAGLE_TREE, strict=True)]
    return Setting(
        target=_name(args.model_name_or_path),
        pair=args.whiflash_drafters,
        positive="eagle3",
        negative="dflash" if args.whiflash_drafters == "df-e3" else "ddtree",
        tree_budget=args.ddtree_tree_budget,
        hidden_size=target.hidden_size,
        eagle_draft=_name(args.whiflash_eagle_draft),
        dflash_draft=_name(args.draft_name_or_path),
        eagle_tree=(tree[0], tree[1], tree[2]),
        block_size=dflash_shape(args.draft_name_or_path, draft, target).block_size,
        dtype=args.dtype or target.dtype,
        max_new_tokens=args.max_new_tokens,
        sample_every=args.sample_every,
    )


def _name(path: str) -> str:
    """A Hub repo id as it is; of a local folder its own name, since records travel between machines."""
    return Path(path).resolve().name if Path(path).is_dir() else path


def _fill_in_demo(args: argparse.Namespace) -> None:
    from whiflash_sglang.demo.settings import demo_settings
    from whiflash_sglang.demo.target import demo_target

    settings: dict[str, Any] = {
        key.replace("-", "_"): value for key, value in demo_settings(args.whiflash_drafters).items()
    }
    args.model_name_or_path = str(demo_target())
    args.draft_name_or_path = args.draft_name_or_path or settings["speculative_draft_model_path"]
    for name in ("whiflash_eagle_draft", *TREE):
        if getattr(args, name) is None:
            setattr(args, name, settings[name])

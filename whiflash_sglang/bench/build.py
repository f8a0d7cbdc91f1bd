"""From flags to the arms they ask for."""

from __future__ import annotations

import argparse
from typing import Any

from whiflash_sglang.bench.arm_names import (
    PLAIN,
    SGLANG_EAGLE3,
    parse_arm_names,
    tree_budget_of,
    whiflash_arm,
)
from whiflash_sglang.bench.arms import Arm
from whiflash_sglang.config import DEFAULT_EAGLE_TREE, WhiflashConfig
from whiflash_sglang.cpu.environment import prepare
from whiflash_sglang.flags import flags_given, given_options

TREE = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
_CPU_POOL_TOKENS = 16384
_SHARED_GPU_FRACTION = 0.8  # of all arms together, where several engines share one GPU
_THRESHOLD = "neural_router_threshold"


def threshold_or_list(text: str) -> float | tuple[float, ...]:
    """One threshold as a number, several (``0,0.5,1``) as a tuple.

    Raises:
        argparse.ArgumentTypeError: no numbers, or one of them twice.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number and no list of numbers like 0,0.5,1"
        ) from error
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError(f"{text!r} holds a threshold twice")
    return values[0] if len(values) == 1 else values


def arms_asked_for(args: argparse.Namespace) -> list[Arm]:
    """The arms of ``--compare``, or the one of ``--speculative-algorithm``; plain too where texts are checked.

    Raises:
        ValueError: flags that do not go together.
    """
    options = given_options(args)
    names = parse_arm_names(args.compare) if args.compare else [_single_name(args, options)]
    if args.check_lossless and PLAIN not in names:
        names.insert(0, PLAIN)
    variants = _variants(names, options)
    common = common_arguments(args)
    if common["device"] != "cpu" and len(variants) > 1:
        common["mem_fraction_static"] = _SHARED_GPU_FRACTION / len(variants)
    return [_arm(args, common, name, chosen) for name, chosen in variants]


def _single_name(args: argparse.Namespace, options: dict[str, Any]) -> str:
    if args.speculative_algorithm == "WHIFLASH":
        return whiflash_arm(options.get("router", WhiflashConfig.router))
    if options and not args.is_demo:
        raise ValueError(
            f"{', '.join(flags_given(options))} given, but --speculative-algorithm is {args.speculative_algorithm}"
        )
    return PLAIN if args.speculative_algorithm == "NONE" else SGLANG_EAGLE3


def _variants(names: list[str], options: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Arm names and their WHIFLASH options: the neural router once per threshold of a list."""
    given, neural = options.get(_THRESHOLD), whiflash_arm("neural")
    if not isinstance(given, tuple):
        return [(name, options) for name in names]
    if neural not in names:
        raise ValueError(
            f"--whiflash-neural-router-threshold is a list, {given}, but no arm of {names} has the neural router"
        )
    others = {name: value for name, value in options.items() if name != _THRESHOLD}
    found: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        if name == neural:
            found += [(f"{name}@{_short(value)}", {**others, _THRESHOLD: value}) for value in given]
        else:
            found.append((name, others))
    return found


def _short(value: float) -> str:
    return repr(value).removesuffix(".0")


def _arm(args: argparse.Namespace, common: dict[str, Any], name: str, options: dict[str, Any]) -> Arm:
    if name == PLAIN:
        return Arm(name, common)
    if name == SGLANG_EAGLE3:
        return Arm(name, common | _sglang_eagle3(args))
    arguments = common | tree_arguments(args) | {"speculative_draft_model_path": args.draft_name_or_path}
    options = {**options, "router": name.removeprefix("whiflash:").partition("@")[0].partition(":")[0]}
    if (budget := tree_budget_of(name)) is not None:
        options |= {"drafters": "ddt-e3", "ddtree_tree_budget": budget}
    try:
        WhiflashConfig.from_mapping({**options, "dflash_draft": args.draft_name_or_path})
    except ValueError as error:
        if not args.compare:
            raise
        raise ValueError(f"--compare names {name}: {error}") from error
    return Arm(name, arguments, options)


def _sglang_eagle3(args: argparse.Namespace) -> dict[str, Any]:
    """SGLang's own EAGLE3: in a comparison with WHIFLASH's EAGLE-3 draft and tree, else as its flags say."""
    arguments = {"speculative_algorithm": "EAGLE3"} | tree_arguments(args)
    if not args.compare:
        if args.draft_name_or_path is None:
            raise ValueError("--draft-name-or-path is missing: EAGLE3 needs its draft there")
        return arguments | {"speculative_draft_model_path": args.draft_name_or_path}
    if args.whiflash_eagle_draft is None:
        raise ValueError(f"--compare names {SGLANG_EAGLE3} but --whiflash-eagle-draft, its draft, is missing")
    draft = {"speculative_draft_model_path": args.whiflash_eagle_draft}
    if args.whiflash_eagle_draft_revision is not None:
        draft["speculative_draft_model_revision"] = args.whiflash_eagle_draft_revision
    return dict(zip(TREE, DEFAULT_EAGLE_TREE, strict=True)) | arguments | draft


def tree_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """SGLang's arguments of EAGLE's tree, those that were given."""
    return {name: getattr(args, name) for name in TREE if getattr(args, name) is not None}


def common_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """SGLang's arguments that every engine of a run has: target, device, dtype, seed, sizes."""
    device = prepare(args.device)
    arguments = {
        "model_path": args.model_name_or_path,
        "device": device,
        "dtype": args.dtype or "auto",
        "random_seed": args.seed,
        "max_running_requests": max(args.concurrency, 1),
        "log_level": "info" if args.verbose else "error",
        "sleep_on_idle": True,
    }
    if device == "cpu":
        arguments |= {"max_total_tokens": _CPU_POOL_TOKENS, "disable_overlap_schedule": True}
    return arguments

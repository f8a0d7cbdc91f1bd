"""benchmark.py's arguments, and the steps of a run."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from whiflash_sglang.bench.answers import Request
from whiflash_sglang.bench.arms import Arm, ArmError
from whiflash_sglang.bench.prompts_file import DEMO, Conversation, load_conversations, sample
from whiflash_sglang.cpu.environment import prepare
from whiflash_sglang.flags import add_flags, flags_given, given_options

_TREE = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
_DEMO_TREE = (3, 4, 8)  # a 61-row verify costs 2.4 decode steps on two cores
_CPU_POOL_TOKENS = 16384
_SHARED_GPU_FRACTION = 0.4


def parser() -> argparse.ArgumentParser:
    """All flags of benchmark.py."""
    p = argparse.ArgumentParser(prog="benchmark.py", description="Benchmark speculative decoding in SGLang.")
    p.add_argument("--config", help="YAML file of these flags; the command line wins.")
    p.add_argument(
        "--speculative-algorithm",
        default="WHIFLASH",
        type=str.upper,
        choices=["WHIFLASH", "EAGLE3", "NONE"],
        help="NONE is plain decoding. [default: WHIFLASH]",
    )
    # The second spellings are SGLang's, so that one YAML file serves both.
    p.add_argument("--model-name-or-path", "--model-path", help="Target. [default: the embedded demo]")
    p.add_argument(
        "--draft-name-or-path",
        "--speculative-draft-model-path",
        help="DFlash draft (WHIFLASH) or EAGLE-3 draft (EAGLE3).",
    )
    for name in _TREE:
        p.add_argument("--" + name.replace("_", "-"), type=int, help="Shape of EAGLE-3's tree.")
    add_flags(p)
    p.add_argument("--dataset", help="JSON Lines of id, category, turns. [default: the demo prompts]")
    p.add_argument("--max-samples", type=int, help="At most so many conversations per category.")
    p.add_argument("--max-new-tokens", type=int, help="[default: 256; 24 in the demo]")
    p.add_argument("--temperature", type=float, default=0.0, help="0 is greedy. [default: 0]")
    p.add_argument("--concurrency", type=int, default=1, help="Conversations at a time. [default: 1]")
    p.add_argument("--enable-thinking", action="store_true", help="Let the chat template think.")
    p.add_argument("--seed", type=int, default=0, help="Of samples and sampling. [default: 0]")
    p.add_argument("--dtype", help="[default: auto; float32 in the demo]")
    p.add_argument("--device", choices=["cpu", "cuda"], help="[default: a GPU where there is one]")
    p.add_argument(
        "--check-lossless",
        action="store_true",
        help="Decode the same prompts plainly as well and compare token ids (the demo does so when greedy).",
    )
    p.add_argument("--output-json", metavar="PATH", help="Write the whole result here.")
    p.add_argument("-v", "--verbose", action="store_true", help="Show SGLang's log and the first prompt.")
    return p


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parse arguments; a YAML ``--config`` stands before them, so that they win.

    Raises:
        ValueError: a config file that cannot be read, or a value that cannot be run.
    """
    argv = sys.argv[1:] if argv is None else argv
    p = parser()
    if "--config" in argv:
        prepare(None)
        from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

        argv = ConfigArgumentMerger(p).merge_config_with_args(argv)
    args = p.parse_args(argv)
    args.is_demo = args.model_name_or_path is None
    _check(args)
    return args


def _check(args: argparse.Namespace) -> None:
    """Refuse values that cannot be run.

    Raises:
        ValueError: names the flag and the value.
    """
    for name in ("concurrency", "max_new_tokens", "max_samples"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {value}; at least 1 is needed")
    if args.temperature < 0:
        raise ValueError(f"--temperature is {args.temperature}; at least 0 is needed")
    if args.check_lossless and args.temperature > 0:
        raise ValueError(f"--check-lossless compares greedy texts, but --temperature is {args.temperature}")


def run(argv: list[str] | None = None) -> int:
    """Run the benchmark; see ``benchmark.main``."""
    try:
        args = parse(argv)
        conversations = sample(load_conversations(args.dataset or DEMO), args.max_samples, args.seed)
        arms, notes = build_arms(args)
        return _run(args, arms, conversations, notes)
    except (ValueError, ArmError) as error:
        print(f"benchmark.py: error: {error}", file=sys.stderr)
        return 2


def build_arms(args: argparse.Namespace) -> tuple[list[Arm], list[str]]:
    """The arm asked for, after a plain one where losslessness is checked; and notes for the report.

    Raises:
        ValueError: flags that do not go together.
    """
    notes: list[str] = []
    if args.is_demo:
        _fill_in_demo(args, notes)
    common = _common_arguments(args)
    plain = Arm("plain", common)
    options = given_options(args)
    if args.speculative_algorithm != "WHIFLASH" and options and not args.is_demo:
        raise ValueError(
            f"{', '.join(flags_given(options))} given, but --speculative-algorithm is {args.speculative_algorithm}"
        )
    if args.speculative_algorithm == "NONE":
        return [plain], notes
    if args.check_lossless and common["device"] != "cpu":
        common["mem_fraction_static"] = _SHARED_GPU_FRACTION  # two engines on one GPU
    arm = _speculative_arm(args, common, options)
    return ([plain, arm] if args.check_lossless else [arm]), notes


def _speculative_arm(args: argparse.Namespace, common: dict[str, Any], options: dict[str, Any]) -> Arm:
    tree = {name: getattr(args, name) for name in _TREE if getattr(args, name) is not None}
    arguments = common | tree | {"speculative_draft_model_path": args.draft_name_or_path}
    if args.speculative_algorithm == "EAGLE3":
        if args.draft_name_or_path is None:
            raise ValueError("--draft-name-or-path is missing: EAGLE3 needs its draft there")
        return Arm("EAGLE3", arguments | {"speculative_algorithm": "EAGLE3"})
    from whiflash_sglang.config import WhiflashConfig

    config = WhiflashConfig.from_mapping({**options, "dflash_draft": args.draft_name_or_path})
    return Arm(f"whiflash:{config.router}", arguments, options)


def _fill_in_demo(args: argparse.Namespace, notes: list[str]) -> None:
    """The embedded demo: SmolLM2-135M-Instruct, random drafters, the alternate router."""
    from whiflash_sglang.demo.drafters import random_dflash, random_eagle3
    from whiflash_sglang.demo.target import MODEL_NAME, demo_target

    target = demo_target()
    args.model_name_or_path = str(target)
    args.dtype = args.dtype or "float32"
    args.max_new_tokens = args.max_new_tokens or 24
    args.check_lossless = args.temperature == 0
    if args.speculative_algorithm == "NONE":
        return
    eagle3, dflash = str(random_eagle3(target)), str(random_dflash(target))
    if args.draft_name_or_path is None:
        args.draft_name_or_path = eagle3 if args.speculative_algorithm == "EAGLE3" else dflash
        notes.append(
            f"The demo's drafters for {MODEL_NAME} are random (untrained): the figures show that every part "
            "works, not what speculation gains."
        )
    args.whiflash_eagle_draft = args.whiflash_eagle_draft or eagle3
    args.whiflash_router = args.whiflash_router or "alternate"
    for name, value in zip(_TREE, _DEMO_TREE, strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)


def _common_arguments(args: argparse.Namespace) -> dict[str, Any]:
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


def _run(args: argparse.Namespace, arms: list[Arm], conversations: list, notes: list[str]) -> int:
    from whiflash_sglang.bench import lossless, report
    from whiflash_sglang.bench.run import run_arms, started

    request = Request(args.max_new_tokens or 256, args.temperature, args.enable_thinking)
    if args.verbose:
        _show_first_prompt(args, conversations[0])
    check = None
    logs = None if args.verbose else Path(tempfile.mkdtemp(prefix="whiflash-"))
    with started(arms, logs) as processes:
        runs = run_arms(processes, conversations, request, args.concurrency)
        if args.check_lossless and len(runs) == 2:
            check = lossless.compare(*runs)
            lossless.measure_margins(check.differences, processes[0])
    report.print_tables(runs, check, notes)
    if args.output_json:
        meta = {"arguments": vars(args), "notes": notes}
        report.write_json(report.to_json(meta, runs, check), args.output_json)
    code = _exit_code(args, runs, check)
    if logs is not None and code == 0:
        shutil.rmtree(logs, ignore_errors=True)  # kept otherwise: errors name them
    return code


def _show_first_prompt(args: argparse.Namespace, conversation: Conversation) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    first = [{"role": "user", "content": conversation.turns[0]}]
    print(
        tokenizer.apply_chat_template(
            first, tokenize=False, add_generation_prompt=True, enable_thinking=args.enable_thinking
        ),
        file=sys.stderr,
    )


def _exit_code(args: argparse.Namespace, runs: list, check: Any) -> int:
    """1 for a failed request, or a difference at temperature 0 in float32."""
    if any(answer.error for run in runs for answer in run.answers):
        return 1
    exact = args.temperature == 0 and args.dtype == "float32"
    return 1 if check is not None and exact and check.counted else 0

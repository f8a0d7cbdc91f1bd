"""benchmark.py's arguments, and the steps of a run."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from whiflash_sglang.bench.answers import Request
from whiflash_sglang.bench.arm_names import parse_arm_names
from whiflash_sglang.bench.arms import Arm, ArmError
from whiflash_sglang.bench.build import TREE, arms_asked_for, threshold_or_list
from whiflash_sglang.bench.lossless import Lossless, check_arms
from whiflash_sglang.bench.prompts_file import DEMO, Conversation, load_conversations, sample
from whiflash_sglang.config import ROUTERS
from whiflash_sglang.cpu.environment import prepare
from whiflash_sglang.flags import add_flags

_DEMO_NEW_TOKENS = 48


def parser() -> argparse.ArgumentParser:
    """All flags of benchmark.py."""
    p = argparse.ArgumentParser(
        prog="benchmark.py",
        description="Benchmark speculative decoding in SGLang.",
        conflict_handler="resolve",  # one of WHIFLASH's flags takes a list here
    )
    p.add_argument("--config", help="YAML file of these flags; the command line wins.")
    p.add_argument(
        "--speculative-algorithm",
        type=str.upper,
        choices=["WHIFLASH", "EAGLE3", "NONE"],
        help="NONE is plain decoding. [default: WHIFLASH]",
    )
    p.add_argument(
        "--compare",
        metavar="ARM[,ARM...]",
        help="Several arms in one run, prompt by prompt in turn: plain, a WHIFLASH router by its name "
        f"({', '.join(ROUTERS)}), sglang:eagle3 (with --whiflash-eagle-draft). Stands instead of "
        "--speculative-algorithm and --whiflash-router; the other flags hold for every arm.",
    )
    # The second spellings are SGLang's, so that one YAML file serves both.
    p.add_argument("--model-name-or-path", "--model-path", help="Target. [default: the embedded demo]")
    p.add_argument(
        "--draft-name-or-path",
        "--speculative-draft-model-path",
        help="DFlash draft (WHIFLASH) or EAGLE-3 draft (EAGLE3).",
    )
    for name in TREE:
        p.add_argument("--" + name.replace("_", "-"), type=int, help="Shape of EAGLE-3's tree.")
    add_flags(p)
    p.add_argument(
        "--whiflash-neural-router-threshold",
        type=threshold_or_list,
        metavar="THRESHOLD[,...]",
        help="As on the server; a list such as 0,0.5,1 gives one arm each. [default: the router's]",
    )
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
        help="Decode the same prompts plainly as well and compare every arm's token ids with that (the demo "
        "does so when greedy).",
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
    typed = p.parse_args(argv)
    if "--config" in argv:
        prepare(None)
        from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

        argv = ConfigArgumentMerger(p).merge_config_with_args(argv)
    args = p.parse_args(argv)
    args.is_demo = args.model_name_or_path is None
    _check(args)
    _check_compare(args, typed)
    args.speculative_algorithm = args.speculative_algorithm or "WHIFLASH"
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


def _check_compare(args: argparse.Namespace, typed: argparse.Namespace) -> None:
    """Refuse arms that cannot be run, and flags typed beside ``--compare`` that name one arm only.

    A YAML file may hold such flags, being the server's as well: ``--compare`` wins over them.

    Raises:
        ValueError: names the flags and the values.
    """
    if args.compare is None:
        return
    parse_arm_names(args.compare)
    for name in ("speculative_algorithm", "whiflash_router"):
        value = getattr(typed, name)
        if value is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is {value}, but --compare {args.compare} names the arms; leave one out"
            )
    args.speculative_algorithm = None


def run(argv: list[str] | None = None) -> int:
    """Run the benchmark; see ``benchmark.main``."""
    try:
        args = parse(argv)
        conversations = sample(load_conversations(args.dataset or DEMO), args.max_samples, args.seed)
        return _run(args, build_arms(args), conversations)
    except (ValueError, ArmError) as error:
        print(f"benchmark.py: error: {error}", file=sys.stderr)
        return 2


def build_arms(args: argparse.Namespace) -> list[Arm]:
    """The arms asked for.

    Raises:
        ValueError: flags that do not go together.
    """
    if args.is_demo:
        _fill_in_demo(args)
    return arms_asked_for(args)


def _fill_in_demo(args: argparse.Namespace) -> None:
    """The embedded demo: SmolLM2-135M-Instruct, the drafters and router trained for it."""
    from whiflash_sglang.demo.settings import demo_settings
    from whiflash_sglang.demo.target import demo_target

    args.model_name_or_path = str(demo_target())
    args.dtype = args.dtype or "float32"
    args.max_new_tokens = args.max_new_tokens or _DEMO_NEW_TOKENS
    args.check_lossless = args.temperature == 0
    settings = {key.replace("-", "_"): value for key, value in demo_settings(args.whiflash_drafters).items()}
    dflash = settings.pop("speculative_draft_model_path")
    draft = settings["whiflash_eagle_draft"] if args.speculative_algorithm == "EAGLE3" else dflash
    args.draft_name_or_path = args.draft_name_or_path or draft
    for name, value in settings.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _run(args: argparse.Namespace, arms: list[Arm], conversations: list) -> int:
    from whiflash_sglang.bench import report
    from whiflash_sglang.bench.run import run_arms, started
    from whiflash_sglang.bench.statistics import all_ratios

    request = Request(args.max_new_tokens or 256, args.temperature, args.enable_thinking)
    if args.verbose:
        _show_first_prompt(args, conversations[0])
    logs = None if args.verbose else Path(tempfile.mkdtemp(prefix="whiflash-"))
    with started(arms, logs) as processes:
        runs = run_arms(processes, conversations, request, args.concurrency)
        checks = check_arms(runs, processes) if args.check_lossless else []
    ratios = all_ratios(runs, args.seed)
    report.print_tables(runs, checks, [], ratios)
    if args.output_json:
        meta = {"arguments": vars(args)}
        report.write_json(report.to_json(meta, runs, checks, ratios), args.output_json)
    code = _exit_code(args, runs, checks)
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


def _exit_code(args: argparse.Namespace, runs: list, checks: list[Lossless]) -> int:
    """1 for a failed request, or a difference at temperature 0 in float32."""
    if any(answer.error for run in runs for answer in run.answers):
        return 1
    exact = args.temperature == 0 and args.dtype == "float32"
    return 1 if exact and any(check.counted for check in checks) else 0

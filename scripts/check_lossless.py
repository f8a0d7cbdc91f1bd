"""Decode the same prompts plainly and with several routers, and compare token ids.

    uv run scripts/check_lossless.py prompts.jsonl --samples 10 --max-new-tokens 96 --concurrency 1 4

Runs the embedded demo (SmolLM2-135M-Instruct, its drafters) on the CPU. A
difference counts unless plain decoding's two best logits lie within 1e-4 there.
Exit status 1 if one counts in float32.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from whiflash_sglang.bench import lossless, report
from whiflash_sglang.bench.answers import Request
from whiflash_sglang.bench.arms import Arm
from whiflash_sglang.bench.cli import build_arms
from whiflash_sglang.bench.cli import parse as benchmark_flags
from whiflash_sglang.bench.prompts_file import load_conversations, sample
from whiflash_sglang.bench.run import run_arms, started


def arguments() -> argparse.Namespace:
    """The script's flags."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("dataset", help="JSON Lines of id, category, turns")
    p.add_argument("--samples", type=int, default=10, help="conversations per category")
    p.add_argument("--max-new-tokens", type=int, default=96)
    p.add_argument("--routers", nargs="+", default=["eagle3", "dflash", "alternate"])
    p.add_argument("--concurrency", type=int, nargs="+", default=[1, 4])
    p.add_argument("--dtype", default="float32")
    p.add_argument("--output-json", help="folder for one result file per concurrency")
    return p.parse_args()


def main() -> int:
    """Run all routers beside plain decoding, once per concurrency."""
    args = arguments()
    conversations = sample(load_conversations(args.dataset), args.samples, seed=0)
    request = Request(args.max_new_tokens, temperature=0.0)
    lost = 0
    for concurrency in args.concurrency:
        arms: list[Arm] = []
        for router in args.routers:
            flags = ["--whiflash-router", router, "--dtype", args.dtype, "--concurrency", str(concurrency)]
            pair = build_arms(benchmark_flags(flags))
            arms += pair if not arms else pair[1:]
        with started(arms, None) as processes:
            runs = run_arms(processes, conversations, request, concurrency)
            checks = [lossless.compare(runs[0], run) for run in runs[1:]]
            for check in checks:
                lossless.measure_margins(check.differences, processes[0])
        print(f"\nconcurrency {concurrency}, {args.dtype}, {args.max_new_tokens} new tokens")
        report.print_tables(runs, None, [line for check in checks for line in check.lines()])
        lost += sum(len(check.counted) for check in checks)
        if args.output_json:
            meta = {"dataset": args.dataset, "concurrency": concurrency, "dtype": args.dtype}
            result = report.to_json(meta, runs, None)
            result["lossless"] = [check.to_json() for check in checks]
            target = Path(args.output_json) / f"lossless-{args.dtype}-c{concurrency}.json"
            report.write_json(result, target)
    return 1 if lost and args.dtype == "float32" else 0


if __name__ == "__main__":
    sys.exit(main())

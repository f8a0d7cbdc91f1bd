"""The best threshold of a router on this machine, without retraining: a short run, then a sweep.

    uv run scripts/tune_threshold.py --router entropy --dataset prompts.jsonl --limit 32
    uv run scripts/tune_threshold.py --router <repo id, folder or file> --dataset prompts.jsonl --limit 32 \\
        --model-name-or-path Qwen/Qwen3-4B --draft-name-or-path <DFlash draft> --whiflash-eagle-draft <EAGLE-3 draft>

Both drafters draft in sampled rounds, so one run serves every threshold. Measure on prompts like your own
traffic, and at its concurrency. The figures are simulated from those rounds: confirm them with benchmark.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from whiflash_sglang.router_training import records as records_on_disk
from whiflash_sglang.router_training.command import add_engine_flags, collect_from_flags
from whiflash_sglang.router_training.round_times import RoundTimes
from whiflash_sglang.router_training.tune import ENTROPY, Tuned, tune, write_threshold


def parser() -> argparse.ArgumentParser:
    """The script's flags."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--router", required=True, help="'entropy', or a neural router's repo id, folder or file.")
    p.add_argument("--rounds", type=Path, help="Folder of collected rounds to reuse or to make.")
    p.add_argument("--write", action="store_true", help="Store it in the router folder's config.json.")
    add_engine_flags(p)
    return p


def main() -> int:
    """Tune; 0 on success, 2 on bad arguments."""
    args = parser().parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="whiflash-tune-") as scratch:
            folder = args.rounds or Path(scratch)
            collect_from_flags(args, folder, shard_prompts=16)
            found = tune(args.router, *records_on_disk.load(folder), RoundTimes.read(folder))
        show(found)
        if args.write:
            print(f"written to {write_threshold(args.router, found.threshold)}")
    except (ValueError, OSError) as error:
        print(f"tune_threshold.py: error: {error}", file=sys.stderr)
        return 2
    return 0


def show(found: Tuned) -> None:
    """The table, and the flag to pass."""
    table = Table(
        "rule", "tokens/round", "tokens/s", "EAGLE-3's share", title="simulated on the collected rounds"
    )
    for name, speed in found.speeds.items():
        share = "-" if speed.positive_share is None else f"{speed.positive_share:.2f}"
        table.add_row(name, f"{speed.tokens_per_round:.2f}", f"{speed.tokens_per_s:.1f}", share)
    Console(width=110).print(table)
    flag = "entropy" if found.router == ENTROPY else "neural-router"
    print(f"--whiflash-{flag}-threshold {found.threshold:.4g}")


if __name__ == "__main__":
    sys.exit(main())

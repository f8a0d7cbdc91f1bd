"""Train a router on collected rounds, show what it would yield, and export it.

    uv run scripts/train_router.py --data rounds --output router
    uv run scripts/train_router.py --data rounds-a rounds-b --output router --seeds 3 --predict both \\
        --round-times eagle3=0.08,dflash=0.06 --push-to-hub me/my-router --private

``--output`` is a folder for ``--whiflash-neural-router-path``. The tables go to
stdout, progress to stderr. Exit status 2 on bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from whiflash_sglang.router_training import export, options, records
from whiflash_sglang.router_training.round_times import RoundTimes
from whiflash_sglang.router_training.tables import print_tables
from whiflash_sglang.router_training.train import train


def parser() -> argparse.ArgumentParser:
    """The script's flags."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, nargs="+", required=True, help="Folders of collected rounds.")
    p.add_argument("--output", type=Path, required=True, help="Folder of the router.")
    p.add_argument(
        "--round-times",
        metavar="eagle3=S,dflash=S[,plain=S]",
        help="Seconds per round. [default: the folders' round_times.json]",
    )
    p.add_argument("--report-json", type=Path, help="File for settings, curves and tables.")
    p.add_argument("--push-to-hub", metavar="REPO_ID", help="Upload the folder.")
    p.add_argument("--private", action="store_true", help="Make the repository private.")
    p.add_argument("--threads", type=int, help="CPU threads. [default: PyTorch's choice]")
    options.add_flags(p.add_argument_group("training"))
    return p


def run(args: argparse.Namespace) -> None:
    """Load, train, print, export, and upload where asked.

    Raises:
        ValueError: any bad input, in one line.
    """
    chosen = options.from_flags(args)
    if args.private and not args.push_to_hub:
        raise ValueError("--private is given without --push-to-hub")
    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"--threads is {args.threads}; it must be above 0")
        torch.set_num_threads(args.threads)
    if args.push_to_hub:
        export.check_repo_id(args.push_to_hub)
    export.refuse_foreign(args.output)
    for folder in args.data:
        if not folder.is_dir():
            raise ValueError(f"--data {folder} is no folder")
    times = RoundTimes.parse(args.round_times) if args.round_times else RoundTimes.read_one_of(args.data)
    rounds, setting = records.load(*args.data)
    result = train(rounds, setting, times, chosen)
    print_tables(result)
    print(f"router written to {export.export(result, args.output)}")
    if args.report_json:
        args.report_json.parent.mkdir(parents=True, exist_ok=True)
        args.report_json.write_text(json.dumps(result.to_json(), indent=2) + "\n")
    if args.push_to_hub:
        print(f"uploaded to {export.push(args.output, args.push_to_hub, args.private)}")


def main(argv: list[str] | None = None) -> int:
    """Run with the given arguments; 0 on success, 2 on bad input."""
    args = parser().parse_args(argv)
    try:
        run(args)
    except (ValueError, OSError) as error:
        print(f"train_router.py: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

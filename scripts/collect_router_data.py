"""Collect what a router learns from: rounds in which both drafters draft from the same prefix.

    uv run scripts/collect_router_data.py --output rounds --dataset allenai/Dolci-Instruct-SFT --limit 4000 \\
        --model-name-or-path Qwen/Qwen3-4B --draft-name-or-path <DFlash draft> --whiflash-eagle-draft <EAGLE-3 draft>

Without a model: the embedded demo's target and drafters. Run it again to go on after an interruption.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from whiflash_sglang.router_training.command import add_engine_flags, collect_from_flags


def parser() -> argparse.ArgumentParser:
    """The script's flags."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--output", type=Path, required=True, help="Folder of shards; resumed if it exists.")
    p.add_argument("--shard-prompts", type=int, default=64, help="Prompts per shard. [default: 64]")
    add_engine_flags(p)
    return p


def main() -> int:
    """Collect; 0 on success, 1 where prompts failed, 2 on bad arguments."""
    args = parser().parse_args()
    try:
        found = collect_from_flags(args, args.output, args.shard_prompts)
    except (ValueError, OSError) as error:
        print(f"collect_router_data.py: error: {error}", file=sys.stderr)
        return 2
    print(f"rounds in {args.output}; seconds per round: {found.times}")
    if found.failed:
        print(f"{len(found.failed)} prompts failed: {', '.join(found.failed)}", file=sys.stderr)
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())

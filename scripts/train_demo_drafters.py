"""Train small EAGLE-3 and DFlash drafters for a small target on a CPU: the demo's, or your own.

    uv run scripts/train_demo_drafters.py generate --prompts prompts.jsonl --answers answers.jsonl
    uv run scripts/train_demo_drafters.py states --answers answers.jsonl --work work
    uv run scripts/train_demo_drafters.py eagle3 --answers answers.jsonl --work work --output eagle3 --minutes 30
    uv run scripts/train_demo_drafters.py dflash --answers answers.jsonl --work work --output dflash --minutes 30

``generate`` writes the target's own greedy answers, ``states`` runs the target
over them once, and the other two train from that. Without ``--prompts``,
``generate`` asks about functions of Python's standard library and made-up tables.
For real targets on GPUs use SpecForge: what it writes loads here as well.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """All steps and their flags."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model-path", help="Target, a local folder. [default: the embedded demo's]")
    steps = p.add_subparsers(dest="step", required=True)
    generate = steps.add_parser("generate", help="The target's greedy answers.")
    generate.add_argument("--prompts", type=Path, help="JSON Lines of id, category, turns.")
    generate.add_argument("--answers", type=Path, required=True, help="File to write; resumed if it exists.")
    generate.add_argument("--max-new-tokens", type=int, default=256)
    generate.add_argument("--batch-size", type=int, default=48)
    states = steps.add_parser("states", help="Run the target over the answers once.")
    eagle3 = steps.add_parser("eagle3", help="Train an EAGLE-3 draft.")
    dflash = steps.add_parser("dflash", help="Train a DFlash draft.")
    for step in (states, eagle3, dflash):
        step.add_argument("--answers", type=Path, nargs="+", required=True, help=".jsonl or .jsonl.gz files.")
        step.add_argument("--work", type=Path, required=True, help="Folder of the target's states.")
    states.add_argument("--layers", type=int, nargs="+", default=[1, 8, 15, 22, 27], help="Layers to record.")
    states.add_argument("--workers", type=int, default=2, help="Single-threaded processes.")
    for step in (eagle3, dflash):
        step.add_argument("--output", type=Path, required=True, help="Folder of the draft.")
        step.add_argument("--minutes", type=float, default=30.0)
        step.add_argument("--learning-rate", type=float, default=6e-4)
        step.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw")
        step.add_argument("--batch", type=int, default=8, help="Sequences per step.")
        step.add_argument("--threads", type=int, default=1)
        step.add_argument("--seed", type=int, default=0)
        step.add_argument("--start-from", type=Path, help="Draft folder to go on from.")
    eagle3.add_argument("--layers", type=int, nargs=3, default=[1, 15, 27])
    eagle3.add_argument("--draft-vocab", type=int, default=8192)
    eagle3.add_argument("--steps", type=int, default=4, help="Draft steps unrolled in training.")
    dflash.add_argument("--layers", type=int, nargs="+", default=[1, 8, 15, 22, 27])
    dflash.add_argument("--num-layers", type=int, default=3)
    dflash.add_argument("--block-size", type=int, default=8)
    dflash.add_argument("--mask-token-id", type=int, default=6, help="An id that text never holds.")
    dflash.add_argument(
        "--trained-ids", type=int, default=6144, help="Most frequent ids, learned at every step."
    )
    dflash.add_argument("--anchors", type=int, default=48, help="Blocks per sequence and step.")
    return p


def main() -> int:
    """Run one step; 0 on success, 2 on bad arguments."""
    args = parser().parse_args()
    from whiflash_sglang.drafter_training import steps

    try:
        getattr(steps, args.step)(args)
    except (ValueError, OSError) as error:
        print(f"train_demo_drafters.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

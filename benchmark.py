"""Benchmark speculative decoding in SGLang. Without arguments: the embedded demo on a CPU.

    uv run benchmark.py
    uv run benchmark.py --speculative-algorithm WHIFLASH --model-name-or-path Qwen/Qwen3-4B \\
        --draft-name-or-path <DFlash draft> --whiflash-eagle-draft <EAGLE-3 draft> \\
        --whiflash-neural-router-path <router> --dataset prompts.jsonl --check-lossless
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; 0 on success, 1 on a lost request or text, 2 on bad arguments."""
    from whiflash_sglang.bench.cli import run

    return run(argv)


if __name__ == "__main__":  # SGLang's child processes import this file
    sys.exit(main())

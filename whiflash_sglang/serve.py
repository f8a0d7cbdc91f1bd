"""SGLang's server with WHIFLASH, on a machine with or without a GPU.

    python -m whiflash_sglang.serve --demo --port 30000
    python -m whiflash_sglang.serve --model-path ... --speculative-algorithm WHIFLASH ...

Takes every flag of ``sglang serve``, with the plugin's. With a GPU it is
``sglang serve``; without one it prepares SGLang's CPU engine first, which
``sglang serve`` cannot be imported without. ``--demo`` serves the embedded
SmolLM2-135M-Instruct; flags given beside it win.
"""

from __future__ import annotations

import argparse
import os
import sys

from whiflash_sglang.cpu.environment import prepare


def main(argv: list[str] | None = None) -> None:
    """Serve until interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    early = argparse.ArgumentParser(add_help=False)
    early.add_argument("--device")
    early.add_argument("--demo", action="store_true")
    known, rest = early.parse_known_args(argv)
    device = prepare(known.device)
    argv = ["--device", device, *(_demo_flags(_pair(rest)) if known.demo else []), *rest]

    from sglang.srt.plugins import load_plugins
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    try:
        server_args = prepare_server_args(argv)
        server_args.resolve_once()
    except ValueError as error:
        sys.exit(f"error: {error}")
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _pair(argv: list[str]) -> str | None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--whiflash-drafters", choices=("df-e3", "ddt-e3"))
    return parser.parse_known_args(argv)[0].whiflash_drafters


def _demo_flags(drafters: str | None) -> list[str]:
    """The embedded demo: target, drafters, router, a small tree."""
    from whiflash_sglang.demo.settings import demo_settings
    from whiflash_sglang.demo.target import MODEL_NAME, demo_target

    flags = {
        "model-path": demo_target(),
        "served-model-name": MODEL_NAME,
        "speculative-algorithm": "WHIFLASH",
        "max-total-tokens": 16384,
        "max-running-requests": 8,
    } | demo_settings(drafters)
    return [text for name, value in flags.items() for text in (f"--{name}", str(value))]


if __name__ == "__main__":  # SGLang's child processes import this file
    main()

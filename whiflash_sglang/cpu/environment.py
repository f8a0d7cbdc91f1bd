"""Prepare this process, and the ones SGLang spawns from it, to run without a GPU.

Must run before the first ``import sglang``. Spawned processes inherit both the
environment variable and ``sys.path``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SUBSTITUTES = Path(__file__).parent / "substitutes"


def is_cpu_engine() -> bool:
    """Whether SGLang runs (or will run) its CPU engine in this process."""
    return os.environ.get("SGLANG_USE_CPU_ENGINE") == "1"


def prepare(device: str | None = None) -> str:
    """Select SGLang's CPU engine where no GPU is to be used.

    Args:
        device: ``"cpu"``, ``"cuda"``, or None to look for a GPU.

    Returns:
        The device SGLang is to be started with, ``"cpu"`` or ``"cuda"``.

    Raises:
        ValueError: a GPU is asked for and there is none.
        RuntimeError: SGLang was imported before, for the other kind of device.
    """
    if device is None:
        device = "cpu" if is_cpu_engine() or not _has_gpu() else "cuda"
    if device == "cuda" and not _has_gpu():
        raise ValueError("--device is 'cuda', but no CUDA GPU was found; --device cpu runs without one")
    if device != "cpu":
        return device
    if "sgl_kernel" in sys.modules and not _is_substitute(sys.modules["sgl_kernel"]):
        raise RuntimeError(
            "whiflash_sglang.cpu.environment.prepare() must run before the first import of sglang: "
            "the CUDA build of sgl_kernel is already loaded"
        )
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    # SGLang compiles a few small functions; on a CPU that costs more than it gives, and a C++ compiler.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    if str(SUBSTITUTES) not in sys.path:
        sys.path.insert(0, str(SUBSTITUTES))
    return device


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _is_substitute(module: object) -> bool:
    return getattr(module, "IS_WHIFLASH_SUBSTITUTE", False)

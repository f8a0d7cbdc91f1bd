"""The folder that holds what the demo makes once and uses again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """``$WHIFLASH_CACHE``, or the platform's user cache folder."""
    return Path(os.environ.get("WHIFLASH_CACHE") or platformdirs.user_cache_dir("whiflash_sglang"))


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name`` in the cache, built on first use.

    The build writes into a temporary folder that is renamed when complete, so
    an interrupted build leaves nothing behind that a later run would use, and
    two runs at once end with one whole folder.

    Args:
        name: folder name; holds a version where the content may change.
        build: fills an empty folder.
    """
    target = cache_dir() / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        build(scratch)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():  # another run finished first: use its folder
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target

"""WHIFLASH in an in-process SGLang engine.

from whiflash_sglang.engine import make_engine

engine = make_engine(
    model_path="Qwen/Qwen3-4B",
    speculative_draft_model_path="z-lab/Qwen3-4B-DFlash-b16",
    whiflash=dict(eagle_draft="...", router="entropy", entropy_threshold=1.2),
)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whiflash_sglang.cpu.environment import prepare


def server_args(
    *, whiflash: Mapping[str, Any], worker: Callable[[], type] | None = None, **sglang_arguments: Any
) -> Any:
    """SGLang's ``ServerArgs`` with a WHIFLASH config on them.

    Args:
        whiflash: fields of :class:`~whiflash_sglang.config.WhiflashConfig`.
        worker: returns, in the scheduler process, a subclass of ``WhiflashWorker`` to
            decode with; must be picklable.
        sglang_arguments: fields of ``sglang.srt.server_args.ServerArgs``;
            ``speculative_draft_model_path`` is the DFlash draft.

    Raises:
        ValueError: an option that does not fit.
    """
    prepare(sglang_arguments.get("device"))
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import ServerArgs

    load_plugins()
    from whiflash_sglang.algorithm import WORKER_ATTRIBUTE
    from whiflash_sglang.hooks import attach

    arguments = {"log_level": "error", "speculative_algorithm": "WHIFLASH"} | sglang_arguments
    args = ServerArgs(**arguments)
    attach(args, dict(whiflash))
    if worker is not None:
        setattr(args, WORKER_ATTRIBUTE, worker)
    return args


def make_engine(
    *, whiflash: Mapping[str, Any], worker: Callable[[], type] | None = None, **sglang_arguments: Any
) -> Any:
    """An ``sglang.Engine`` that decodes with WHIFLASH; arguments as in :func:`server_args`."""
    args = server_args(whiflash=whiflash, worker=worker, **sglang_arguments)
    import sglang

    return sglang.Engine(server_args=args)

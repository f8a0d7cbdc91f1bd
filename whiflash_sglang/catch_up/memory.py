"""What the second draft pool and the pending rows cost: said at start-up, and left out of the K/V budget."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from sglang.srt.arg_groups.overrides import resolving_view

from whiflash_sglang.algorithm import NAME, config_of
from whiflash_sglang.catch_up.pending import PendingRows, rows_kept
from whiflash_sglang.drafters.base import Drafter
from whiflash_sglang.drafters.configs import read_drafts

logger = logging.getLogger(__name__)


def pay_for_pending_rows(available: int, configurator: Any, pre_model_load_memory: int) -> int | None:
    """After SGLang measured what is left for K/V, in bytes: the pending rows are allocated later, out of it."""
    from sglang.srt.runtime_context import get_schedule, get_server_args, get_spec

    if get_spec().speculative_algorithm != NAME or configurator.is_draft_worker:
        return None
    args = get_server_args()
    drafts = read_drafts(resolving_view(args), config_of(args))
    widest = max(args.speculative_num_steps + 1, drafts.dflash.block_size)
    slots = (get_schedule().max_running_requests or 1) + 1
    shape = slots, rows_kept(widest), drafts.feature_size
    return available - PendingRows.bytes_needed(*shape, configurator.model_config.dtype)


def log_memory(drafters: Sequence[Drafter], pending: PendingRows) -> None:
    """One line: MiB of each draft's K/V pool and of the pending rows."""
    pools = [
        f"{d.name} draft K/V {_mib(sum(d.runner.token_to_kv_pool.get_kv_size_bytes()))}" for d in drafters
    ]
    rows = f"pending rows {_mib(pending.size_bytes)} ({pending.bound} per request)"
    logger.info("WHIFLASH memory: %s", ", ".join([*pools, rows]))


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"

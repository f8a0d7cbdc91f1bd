"""The router's view of the target: taps on its forward, and one score per request between rounds."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.runtime_context import get_schedule

from whiflash_sglang.features import TargetTap
from whiflash_sglang.ranks import broadcast
from whiflash_sglang.routing import RoundSignals
from whiflash_sglang.state import RouterScores
from whiflash_sglang.vocabulary import logits_processor_of


class Signals:
    """Reads what a router asks for at each request's last committed row, and keeps its score.

    Args:
        router: says what it needs, and scores it.
        runner: the target's ModelRunner.
        widest_verify: rows per request of the widest verify.
    """

    def __init__(self, router: Any, runner: Any, widest_verify: int) -> None:
        self.router, self._runner = router, runner
        config, device = runner.model_config, runner.device
        self.rows = _most_rows(config, widest_verify)
        hidden = entropy = None
        if router.needs_hidden:
            hidden = torch.empty((self.rows, config.hidden_size), dtype=config.dtype, device=device)
        if router.needs_entropy:
            entropy = torch.empty(self.rows, dtype=torch.float32, device=device)
        self.tap = TargetTap(logits_processor_of(runner.model), hidden=hidden, entropy=entropy)

    def alloc(self, request_slots: int) -> None:
        """Allocate the scores."""
        self.scores = RouterScores(request_slots, self._runner.device)

    def live(self, batch: Any) -> torch.Tensor:
        """Scores float32 [requests] of the live batch; rank 0's, so that all ranks pick alike."""
        scores = self.scores.read(batch.req_pool_indices)
        return broadcast(scores) if self.router.reads_target else scores

    def score_prompts(self, batch: Any) -> None:
        """Score every request at the last row of its chunk; a later chunk overwrites."""
        if not self.router.reads_target:
            return
        lens = torch.as_tensor(batch.extend_lens, device=batch.device)
        last_rows = torch.cumsum(lens, dim=0) - 1
        self._score(batch, last_rows, torch.arange(len(lens), device=batch.device))

    def score_rounds(self, batch: Any, result: Any) -> None:
        """Score every request at its last accepted row; the tap holds rows in tree order."""
        if not self.router.reads_target:
            return
        last = (result.accept_lens.to(torch.int64) - 1).unsqueeze(1)
        rows = result.accept_index.to(torch.int64).gather(1, last).squeeze(1)
        self._score(batch, rows, rows)

    def _score(self, batch: Any, hidden_rows: torch.Tensor, logits_rows: torch.Tensor) -> None:
        signals = RoundSignals(self.tap.hidden(hidden_rows), self.tap.entropy(logits_rows))
        self.scores.write(batch.req_pool_indices, self.router.score(signals))


def _most_rows(model_config: Any, widest_verify: int) -> int:
    """Rows of the largest target forward."""
    schedule = get_schedule()
    prefill = max(schedule.chunked_prefill_size or 0, schedule.max_prefill_tokens, model_config.context_len)
    return max(prefill, (schedule.max_running_requests or 1) * widest_verify)

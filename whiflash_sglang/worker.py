"""The worker: one round is route, draft, verify, commit.

    target's last accepted row ──► router ──► eagle3 │ dflash │ plain
                                                  │ tree
                                   target verifies it (run_eagle_verify)
                                                  │ accepted path
                                   both drafters commit its rows

Both drafters are brought up to date after every verify, so that either can be
picked next.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.model_executor.graph_memory_usage import merge_graph_memory_usage
from sglang.srt.runtime_context import get_parallel, get_schedule
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_worker_common import run_eagle_verify
from sglang.srt.speculative.spec_utils import get_plan_stream

from whiflash_sglang.drafters.base import Drafter
from whiflash_sglang.drafters.plain import PlainDrafter
from whiflash_sglang.features import TargetTap
from whiflash_sglang.loading import load_drafters
from whiflash_sglang.metrics import META_KEY, RoundInfo
from whiflash_sglang.rounds import CommittedRows, window_plan
from whiflash_sglang.routing import DFLASH, EAGLE3, RoundSignals, build_router
from whiflash_sglang.state import RouterScores
from whiflash_sglang.verify import VerifyRuntimes, VerifyShape
from whiflash_sglang.vocabulary import logits_processor_of


class WhiflashWorker(BaseSpecWorker):
    """SGLang's speculative worker for WHIFLASH. See the module's docstring."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        self._target_worker = target_worker
        self.device = target_worker.device
        config, self.eagle3, self.dflash = load_drafters(server_args, gpu_id, nccl_port, target_worker)
        self.plain = PlainDrafter(target_worker)
        # EAGLE-3 last: its forwards rewrite fields of the batch.
        self._drafters: dict[str, Drafter] = {DFLASH: self.dflash, EAGLE3: self.eagle3}
        self.commit_width = 1 + max(d.depth for d in self._drafters.values())
        model_config = target_worker.model_runner.model_config
        self.router = build_router(
            config,
            target=model_config.model_path,
            hidden_size=model_config.hidden_size,
            device=self.device,
        )
        self._tap = self._tap_target(model_config)
        self.runtimes = VerifyRuntimes(target_worker.model_runner)
        self.plan_stream, self.plan_stream_ctx = get_plan_stream(self.device)

    # -- what SGLang asks of a worker -------------------------------------------------

    @property
    def draft_worker(self) -> Any:
        """SGLang's EAGLE draft worker: its parallel layout and runner stand for the drafts."""
        return self.eagle3.worker

    @property
    def draft_parallel_layout(self) -> Any:
        """How the EAGLE-3 draft is spread over ranks; DFlash follows it."""
        return self.eagle3.worker.parallel_layout

    @property
    def last_shared_read_runner(self) -> Any:
        """The runner whose forward is the last of a round to read shared buffers."""
        return self.eagle3.runner

    @property
    def spec_v2_attn_backends(self) -> tuple:
        """Every attention backend of a round."""
        draft = self.eagle3.worker
        return (
            self._target_worker.model_runner.attn_backend,
            draft.draft_attn_backend,
            draft.draft_extend_attn_backend or draft.draft_runner.attn_backend,
            self.dflash.runner.attn_backend,
        )

    @property
    def weight_load_time(self) -> float:
        """Seconds, both drafts."""
        return self.eagle3.worker.weight_load_time + self.dflash.worker.weight_load_time

    @property
    def preloaded_weights_bytes(self) -> int:
        """Bytes, both drafts."""
        return self.eagle3.worker.preloaded_weights_bytes + self.dflash.worker.preloaded_weights_bytes

    @property
    def graph_memory_usage(self) -> dict[str, float]:
        """GB by phase, both drafts."""
        return merge_graph_memory_usage(
            self.eagle3.worker.graph_memory_usage, self.dflash.worker.graph_memory_usage
        )

    def _draft_model_runners(self) -> tuple[Any, ...]:
        return self.eagle3.runner, self.dflash.runner

    def weight_update_runners(self) -> list[tuple[str, Any]]:
        """Both drafts own weights."""
        return [("draft", self.eagle3.runner), ("draft_dflash", self.dflash.runner)]

    def alloc_memory_pool(
        self,
        memory_pool_config: Any = None,
        req_to_token_pool: Any = None,
        token_to_kv_pool_allocator: Any = None,
    ) -> None:
        """Allocate both draft pools over the target's slots, and the router's scores."""
        self.req_to_token_pool = req_to_token_pool
        self.token_to_kv_pool_allocator = token_to_kv_pool_allocator
        for drafter in self._drafters.values():
            drafter.alloc_memory_pool(
                memory_pool_config=memory_pool_config,
                req_to_token_pool=req_to_token_pool,
                token_to_kv_pool_allocator=token_to_kv_pool_allocator,
            )
        self.scores = RouterScores(req_to_token_pool.req_to_token.shape[0], self.device)

    def init_attention_backends(self) -> None:
        """Build the drafts' backends; the target's own exists by now."""
        for drafter in self._drafters.values():
            drafter.init_attention_backends(self.commit_width)

    def init_cuda_graphs(self) -> None:
        """Capture the drafts' graphs, and build the target's runtime of every width."""
        for drafter in self._drafters.values():
            drafter.init_cuda_graphs(self.commit_width)
        self.runtimes.adopt(_verify_shape(self.eagle3))
        self.runtimes.build(_verify_shape(self.dflash))
        self.runtimes.build(_verify_shape(self.plain))

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Any = None,
        grammar_barrier: Any = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        """A prompt chunk or a decode round.

        Args:
            batch: SGLang's ScheduleBatch.
            on_publish: called with the new lengths as soon as they are known.
            grammar_barrier: brings grammars up to date with the round before.
        """
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self._prefill(batch, on_publish)
        return self._round(batch, on_publish, grammar_barrier)

    # -- a prompt chunk ---------------------------------------------------------------

    def _prefill(self, batch: Any, on_publish: Any) -> Any:
        result = self._target_worker.forward_batch_generation(
            batch, capture_hidden_mode=CaptureHiddenMode.FULL, return_kv_loc_plan=True
        )
        kv_loc_plan, result.kv_loc_plan = result.kv_loc_plan, None
        result.new_seq_lens = batch.seq_lens
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        self._score_prompts(batch)
        captured = result.logits_output.hidden_states
        state = EagleDraftInput(bonus_tokens=result.next_token_ids)
        for name, drafter in self._drafters.items():
            if self._takes_part(name):
                drafter.prefill(batch, captured, state, kv_loc_plan)
            else:
                drafter.skip(state)
        result.next_draft_input = state
        result.logits_output.hidden_states = None
        return result

    # -- a decode round ---------------------------------------------------------------

    def _round(self, batch: Any, on_publish: Any, grammar_barrier: Any) -> Any:
        drafter = self._route(batch)
        self.runtimes.activate(_verify_shape(drafter))
        batch.spec_info = self._draft(batch, drafter)
        result = self._verify(batch, drafter, grammar_barrier)
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        self._score_rounds(batch, result)
        self._commit(batch, result, drafter)
        return result

    def _route(self, batch: Any) -> Any:
        """The drafter of this round, one for the whole batch."""
        if _has_penalties(batch.sampling_info):
            return self.plain
        return self._drafters[self.router.pick(self._live_scores(batch))]

    def _draft(self, batch: Any, drafter: Any) -> Any:
        """The tree to verify, an ``EagleVerifyInput``."""
        return drafter.draft(batch)

    def _verify(self, batch: Any, drafter: Any, grammar_barrier: Any) -> Any:
        result = run_eagle_verify(
            batch,
            target_worker=self._target_worker,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            plan_stream=self.plan_stream,
            plan_stream_ctx=self.plan_stream_ctx,
            topk=drafter.topk,
            num_draft_tokens=drafter.width,
            device=self.device,
            metadata_ready_pre_pad=False,
            finalize_tree_path=True,
            grammar_barrier=grammar_barrier,
        )
        self.runtimes.count(result.can_run_cuda_graph)
        info = RoundInfo(drafter.name, drafter.width - 1, result)
        result.logits_output.customized_info = {META_KEY: info}
        return result

    def _commit(self, batch: Any, result: Any, drafter: Any) -> None:
        """Bring the drafters that take part up to date for the accepted rows."""
        window = window_plan(batch, self.commit_width, self._target_worker)
        rows = CommittedRows.from_verify(result, drafter.width, self.commit_width, window)
        for name, each in self._drafters.items():
            if self._takes_part(name):
                each.commit(batch, rows, result.next_draft_input)
            else:
                each.skip(result.next_draft_input)
        result.logits_output.hidden_states = None

    # -- routing signals --------------------------------------------------------------

    def _tap_rows(self, model_config: Any) -> int:
        """Rows of the largest target forward."""
        schedule = get_schedule()
        prefill_rows = max(
            schedule.chunked_prefill_size or 0, schedule.max_prefill_tokens, model_config.context_len
        )
        verify_rows = (schedule.max_running_requests or 1) * max(d.width for d in self._drafters.values())
        return max(prefill_rows, verify_rows)

    def _tap_target(self, model_config: Any) -> TargetTap:
        rows, hidden, entropy = self._tap_rows(model_config), None, None
        if self.router.needs_hidden:
            size, dtype = (rows, model_config.hidden_size), model_config.dtype
            hidden = torch.empty(size, dtype=dtype, device=self.device)
        if self.router.needs_entropy:
            entropy = torch.empty(rows, dtype=torch.float32, device=self.device)
        processor = logits_processor_of(self._target_worker.model_runner.model)
        return TargetTap(processor, hidden=hidden, entropy=entropy)

    def _live_scores(self, batch: Any) -> torch.Tensor:
        """Scores float32 [requests] of the live batch; rank 0's, so that all ranks pick alike."""
        scores = self.scores.read(batch.req_pool_indices)
        group = get_parallel().tp_group
        if self.router.reads_target and group.world_size > 1:
            group.broadcast(scores, src=0)
        return scores

    def _takes_part(self, name: str) -> bool:
        return name in self.router.drafters

    def _score_prompts(self, batch: Any) -> None:
        """Score every request at the last row of its chunk; a later chunk overwrites."""
        if not self.router.reads_target:
            return
        lens = torch.as_tensor(batch.extend_lens, device=self.device)
        last_rows = torch.cumsum(lens, dim=0) - 1
        logits_rows = torch.arange(len(batch.extend_lens), device=self.device)
        self._write_scores(batch, last_rows, logits_rows)

    def _score_rounds(self, batch: Any, result: Any) -> None:
        """Score every request at its last accepted row; the tap holds rows in tree order."""
        if not self.router.reads_target:
            return
        last = (result.accept_lens.to(torch.int64) - 1).unsqueeze(1)
        rows = result.accept_index.to(torch.int64).gather(1, last).squeeze(1)
        self._write_scores(batch, rows, rows)

    def _write_scores(self, batch: Any, hidden_rows: torch.Tensor, logits_rows: torch.Tensor) -> None:
        signals = RoundSignals(self._tap.hidden(hidden_rows), self._tap.entropy(logits_rows))
        self.scores.write(batch.req_pool_indices, self.router.score(signals))


def _verify_shape(drafter: Any) -> VerifyShape:
    return VerifyShape(drafter.width, drafter.topk, drafter.depth)


def _has_penalties(sampling_info: Any) -> bool:
    """Whether a penalty applies: then a round must commit one token, each counted before the next."""
    return sampling_info.acc_additive_penalties is not None or sampling_info.acc_scaling_penalties is not None

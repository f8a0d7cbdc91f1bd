"""The worker: one round is route, draft, verify, commit.

    target's last accepted row ──► router ──► eagle3 │ dflash │ plain
                                                  │ it catches up on its pending rows, and drafts
                                   target verifies the tree (run_eagle_verify)
                                                  │ accepted path
                                   its rows become pending for every drafter

Only the drafter of a round is brought up to date; see ``catch_up/ledger.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.model_executor.graph_memory_usage import merge_graph_memory_usage
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_utils import _eagle_prefill_tail_tokens
from sglang.srt.speculative.eagle_worker_common import run_eagle_verify
from sglang.srt.speculative.spec_utils import get_plan_stream

from whiflash_sglang.catch_up.ledger import Ledger
from whiflash_sglang.catch_up.memory import log_memory
from whiflash_sglang.catch_up.pending import PendingRows, rows_kept
from whiflash_sglang.clock import CATCH_UP, COMMIT, DRAFT, IDLE_CATCH_UP, OTHER, ROUTING, VERIFY, Laps
from whiflash_sglang.drafters.base import Drafter, VerifyShape
from whiflash_sglang.drafters.plain import PlainDrafter
from whiflash_sglang.loading import load_drafters
from whiflash_sglang.metrics import META_KEY, RoundInfo
from whiflash_sglang.rounds import prompt_rows
from whiflash_sglang.routing import DFLASH, EAGLE3, build_router
from whiflash_sglang.signals import Signals
from whiflash_sglang.verify import VerifyRuntimes


class WhiflashWorker(BaseSpecWorker):
    """SGLang's speculative worker for WHIFLASH. See the module's docstring."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        self._target_worker = target_worker
        self.device = target_worker.device
        config, drafts, self.eagle3, self.dflash, self._pace = load_drafters(
            server_args, gpu_id, nccl_port, target_worker
        )
        self.plain = PlainDrafter(target_worker)
        # EAGLE-3 last: its forwards rewrite fields of the batch.
        self._drafters: dict[str, Drafter] = {DFLASH: self.dflash, EAGLE3: self.eagle3}
        runner = target_worker.model_runner
        self.router = build_router(
            config,
            target=runner.model_config.model_path,
            hidden_size=runner.model_config.hidden_size,
            device=self.device,
        )
        self.signals = Signals(self.router, runner, max(shape.width for shape in self._shapes()))
        self._feature_size = drafts.feature_size
        self._publishes = not resolving_view(server_args).disable_radix_cache
        self._released: dict[int, tuple[int, Laps]] = {}  # by request slot, until its last round is reported
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
        """Allocate both draft pools over the target's slots, the router's scores and the pending rows."""
        self.req_to_token_pool = req_to_token_pool
        self.token_to_kv_pool_allocator = token_to_kv_pool_allocator
        for drafter in self._drafters.values():
            drafter.alloc_memory_pool(
                memory_pool_config=memory_pool_config,
                req_to_token_pool=req_to_token_pool,
                token_to_kv_pool_allocator=token_to_kv_pool_allocator,
            )
        self.signals.alloc(req_to_token_pool.req_to_token.shape[0])
        self.ledger = self._open_ledger(req_to_token_pool.req_to_token.shape[0])

    def init_attention_backends(self) -> None:
        """Build the drafts' backends; the target's own exists by now."""
        for drafter in self._drafters.values():
            drafter.init_attention_backends()

    def init_cuda_graphs(self) -> None:
        """Capture the drafts' graphs, and build the target's runtime of every width."""
        for drafter in self._drafters.values():
            drafter.init_cuda_graphs()
        self.runtimes.adopt(self.eagle3.shapes[-1])
        for shape in (*self._shapes(), *self.plain.shapes):
            self.runtimes.build(shape)

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

    def _shapes(self) -> list[VerifyShape]:
        return [shape for drafter in self._drafters.values() for shape in drafter.shapes]

    def _open_ledger(self, slots: int) -> Ledger:
        runner = self._target_worker.model_runner
        widest = 1 + max(shape.depth for shape in self._shapes())
        shape = slots, rows_kept(widest), self._feature_size
        pending = PendingRows(*shape, dtype=runner.model_config.dtype, device=self.device)
        taking_part = [self._drafters[name] for name in self._drafters if name in self.router.drafters]
        log_memory([self.eagle3, self.dflash], pending)
        return Ledger(taking_part, pending, widest, runner.kv_index_translator)

    def prepare_for_kv_cache_release(self, req: Any) -> None:
        """SGLang's call before a decoded request's slots go to the prefix cache: every drafter's K/V complete."""
        if not self._publishes:
            return
        laps, slot = Laps(self.device), req.kv.req_pool_idx
        written = self.ledger.release(slot, req.owned_kv_len())
        laps.end(IDLE_CATCH_UP)
        self._released[slot] = written, laps

    # -- a prompt chunk ---------------------------------------------------------------

    def _prefill(self, batch: Any, on_publish: Any) -> Any:
        result = self._target_worker.forward_batch_generation(
            batch, capture_hidden_mode=CaptureHiddenMode.FULL, return_kv_loc_plan=True
        )
        kv_loc_plan, result.kv_loc_plan = result.kv_loc_plan, None
        result.new_seq_lens = batch.seq_lens
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        self.signals.score_prompts(batch)
        tails = _eagle_prefill_tail_tokens(batch, result.next_token_ids)
        for req in batch.reqs:
            self._released.pop(req.kv.req_pool_idx, None)
        rows = prompt_rows(batch, result.logits_output.hidden_states, tails, kv_loc_plan)
        self.ledger.prompt(batch, rows)
        result.next_draft_input = EagleDraftInput(bonus_tokens=result.next_token_ids)
        self.eagle3.blank(result.next_draft_input)
        result.logits_output.hidden_states = None
        return result

    # -- a decode round ---------------------------------------------------------------

    def _round(self, batch: Any, on_publish: Any, grammar_barrier: Any) -> Any:
        laps = Laps(self.device)
        drafter = self._route(batch)
        laps.end(ROUTING)
        caught_up = self._catch_up(batch, drafter, laps)
        batch.spec_info = self._draft(batch, drafter)
        laps.end(DRAFT)
        result = self._verify(batch, drafter, grammar_barrier)
        laps.end(VERIFY)
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        laps.end(OTHER)
        self.signals.score_rounds(batch, result)
        laps.end(ROUTING)
        self._commit(batch, result)
        laps.end(COMMIT)
        info = RoundInfo(
            drafter.name,
            self.runtimes.active.width - 1,
            batch,
            result,
            caught_up,
            laps,
            self._released,
            expected=drafter.expected,
            on_known=None if self._pace is None else self._pace.observe,
        )
        result.logits_output.customized_info = {META_KEY: info}
        return result

    def _route(self, batch: Any) -> Any:
        """The drafter of this round, one for the whole batch."""
        if _has_penalties(batch.sampling_info):
            return self.plain
        return self._drafters[self.router.pick(self.signals.live(batch))]

    def _catch_up(self, batch: Any, drafter: Any, laps: Laps) -> list[int]:
        """The drafter of the round is up to date, and the others' pending rows have room; rows per request."""
        rows = self.ledger.catch_up(batch, drafter)
        laps.end(CATCH_UP)
        self.ledger.make_room(batch)
        laps.end(IDLE_CATCH_UP)
        return rows

    def _draft(self, batch: Any, drafter: Any) -> Any:
        """The tree to verify, an ``EagleVerifyInput``; its shape's runtime becomes the target's."""
        return drafter.draft(batch, self.runtimes.activate)

    def _verify(self, batch: Any, drafter: Any, grammar_barrier: Any) -> Any:
        result = run_eagle_verify(
            batch,
            target_worker=self._target_worker,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            plan_stream=self.plan_stream,
            plan_stream_ctx=self.plan_stream_ctx,
            topk=self.runtimes.active.topk,
            num_draft_tokens=self.runtimes.active.width,
            device=self.device,
            metadata_ready_pre_pad=False,
            finalize_tree_path=True,
            grammar_barrier=grammar_barrier,
        )
        self.runtimes.count(result.can_run_cuda_graph)
        return result

    def _commit(self, batch: Any, result: Any) -> None:
        """The accepted path, which the verify moved to the front of each request's rows, becomes pending."""
        bs, shape = len(batch.reqs), self.runtimes.active
        rows = shape.depth + 1
        tokens = result.next_token_ids.to(torch.int64).view(bs, shape.width)
        features = result.logits_output.hidden_states.view(bs, shape.width, -1)
        self.ledger.committed(batch, features[:, :rows], tokens[:, :rows])
        self.eagle3.blank(result.next_draft_input)
        result.logits_output.hidden_states = None


def _has_penalties(sampling_info: Any) -> bool:
    """Whether a penalty applies: then a round must commit one token, each counted before the next."""
    return sampling_info.acc_additive_penalties is not None or sampling_info.acc_scaling_penalties is not None

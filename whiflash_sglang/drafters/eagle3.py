"""EAGLE-3: SGLang's draft worker, its context K/V written by projections alone.

Source: Li et al., "EAGLE-3" (2025); SGLang 0.5.23 ``speculative/eagle_worker_v2.py``.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput, EagleDraftInput
from sglang.srt.speculative.eagle_utils import get_draft_recurrent_hidden_state_spec
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft_extend
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from sglang.srt.speculative.spec_utils import draft_tp_context, fast_topk, renorm_draft_probs

from whiflash_sglang.drafters.base import Activate, VerifyShape
from whiflash_sglang.drafters.context_kv import project_kv, write_kv
from whiflash_sglang.features import FeatureColumns
from whiflash_sglang.rounds import ContextRows, window_plan

_LAST_ROW = 1  # rows per request of the extend that a draft starts from


class Eagle3Drafter:
    """Autoregressive drafter: one layer, a tree from some steps of top-k.

    A draft starts from its own hidden state and top-k at each request's last
    committed row: the one row that runs through layer and head before drafting.
    """

    name = "eagle3"
    needs_last_row = True
    expected: torch.Tensor | None = None  # its scores are not kept

    def __init__(self, worker: EagleDraftWorker, target_worker: Any, columns: FeatureColumns) -> None:
        self.worker = worker
        self._target_worker = target_worker
        self._columns = columns
        self._topk: int = worker.topk
        tree = worker.speculative_num_draft_tokens, worker.topk, worker.speculative_num_steps
        self.shapes: tuple[VerifyShape, ...] = (VerifyShape(*tree),)

    @property
    def runner(self) -> Any:
        """The draft's ModelRunner."""
        return self.worker.draft_runner

    def alloc_memory_pool(self, **pools: Any) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        self.worker.alloc_memory_pool(**pools)

    def init_attention_backends(self) -> None:
        """SGLang reads the width of a draft extend from its process-wide config."""
        with get_spec().override(speculative_num_draft_tokens=_LAST_ROW):
            self.worker.init_attention_backends()

    def init_cuda_graphs(self) -> None:
        """See :meth:`init_attention_backends`."""
        with get_spec().override(speculative_num_draft_tokens=_LAST_ROW):
            self.worker.init_cuda_graphs()

    def write_context(self, rows: ContextRows) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`; the layer's K and V from embedding and features.

        A row pairs the target's features at its position with the token after it.
        """
        with draft_tp_context(self.worker.parallel_layout):
            model = self.runner.model.model
            layer = model.layers[0]
            embeds = layer.input_layernorm(model.embed_tokens(rows.next_tokens))
            fused = layer.hidden_norm(self._fuse(model, self._columns(rows.features)))
            kv = project_kv(layer.self_attn, torch.cat([embeds, fused], dim=-1))
            write_kv(self.runner, layer.self_attn, kv, rows.positions, rows.slots(self.runner))

    def begin(self, batch: Any, last: ContextRows) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`; fills ``batch.spec_info``, the state."""
        before = _one_shorter(batch)
        with draft_tp_context(self.worker.parallel_layout):
            forward_batch = prepare_for_draft_extend(
                self._extend_input(last),
                before,
                last.next_tokens,
                _LAST_ROW,
                self.runner,
                self.worker.cuda_graph_runner_for_draft_extend,
                return_hidden_states_before_norm=False,
                kv_loc_plan=self._plan_last_row(before),
            )
            output = self._extend(forward_batch, len(last))
        state = batch.spec_info
        probs = renorm_draft_probs(output.next_token_logits, batch.sampling_info, False)
        state.topk_p, state.topk_index = fast_topk(probs, self._topk, dim=-1)
        state.hidden_states = output.hidden_states

    def draft(self, batch: Any, activate: Activate) -> Any:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        activate(self.shapes[-1])
        with draft_tp_context(self.worker.parallel_layout):
            return self.worker.draft(batch)

    def blank(self, state: EagleDraftInput) -> None:
        """Zeros of the right shape until :meth:`begin`: SGLang's filter, merge and overlap relay index these."""
        bs, device = state.bonus_tokens.shape[0], state.bonus_tokens.device
        hidden_size, dtype = get_draft_recurrent_hidden_state_spec(self.runner)
        state.topk_p = torch.zeros((bs, self._topk), dtype=torch.float32, device=device)
        state.topk_index = torch.zeros((bs, self._topk), dtype=torch.int64, device=device)
        state.hidden_states = torch.zeros((bs, hidden_size), dtype=dtype, device=device)

    @staticmethod
    def _fuse(model: Any, features: torch.Tensor) -> torch.Tensor:
        """[n, hidden] of the captured layers, as the draft's own forward fuses them."""
        if model.input_norm is not None:
            features = model.input_norm(features)
        if model.fc_norm is not None:
            chunks = features.chunk(model.num_aux_hidden_states, dim=-1)
            features = torch.cat([norm(c) for norm, c in zip(model.fc_norm, chunks, strict=True)], dim=-1)
        return model.fc(features)

    def _plan_last_row(self, before: Any) -> Any:
        before.out_cache_loc = None
        plan = window_plan(before, _LAST_ROW, self._target_worker)
        before.out_cache_loc = plan.write_virtual
        return plan

    def _extend_input(self, last: ContextRows) -> EagleDraftExtendInput:
        accepted = torch.ones(len(last), dtype=torch.int32, device=last.positions.device)
        return EagleDraftExtendInput(
            hidden_states=self._columns(last.features),
            num_correct_drafts=accepted - 1,
            num_accept_tokens=accepted,
            num_tokens_per_req=_LAST_ROW,
            num_tokens_for_logprob_per_req=1,
            select_index=torch.arange(len(last), device=last.positions.device),
        )

    def _extend(self, forward_batch: Any, rows: int) -> Any:
        """Run the extend; logits and hidden states of each request's row."""
        graph_runner = self.worker.cuda_graph_runner_for_draft_extend
        if graph_runner and graph_runner.can_run_graph(forward_batch):
            return graph_runner.execute(forward_batch, forward_batch.spec_info.select_index)
        output = self.runner.forward(forward_batch).logits_output
        output.hidden_states = output.hidden_states[:rows]
        return output


def _one_shorter(batch: Any) -> Any:
    """A view of the batch before each request's last committed row; the batch itself stays as it is."""
    view = copy.copy(batch)
    view.seq_lens = batch.seq_lens - 1
    if batch.seq_lens_cpu is not None:
        view.seq_lens_cpu = batch.seq_lens_cpu - 1
        view.seq_lens_sum = int(view.seq_lens_cpu.sum())
    return view

"""EAGLE-3: SGLang's draft worker, with a commit of one width whoever drafted the round.

Source: Li et al., "EAGLE-3" (2025); SGLang 0.5.23 ``speculative/eagle_worker_v2.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput, EagleDraftInput
from sglang.srt.speculative.eagle_utils import get_draft_recurrent_hidden_state_spec
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft_extend
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from sglang.srt.speculative.spec_utils import draft_tp_context, fast_topk, renorm_draft_probs

from whiflash_sglang.features import FeatureColumns
from whiflash_sglang.rounds import CommittedRows


class Eagle3Drafter:
    """Autoregressive drafter: one layer, a tree of ``width`` nodes from ``depth`` steps of top-k.

    Between rounds its state is an ``EagleDraftInput`` on the batch: the draft's
    hidden state and first top-k at the last committed row of each request.
    """

    name = "eagle3"

    def __init__(self, worker: EagleDraftWorker, columns: FeatureColumns) -> None:
        self.worker = worker
        self._columns = columns
        self.width: int = worker.speculative_num_draft_tokens
        self.topk: int = worker.topk
        self.depth: int = worker.speculative_num_steps

    @property
    def runner(self) -> Any:
        """The draft's ModelRunner."""
        return self.worker.draft_runner

    def alloc_memory_pool(self, **pools: Any) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        self.worker.alloc_memory_pool(**pools)

    def init_attention_backends(self, commit_width: int) -> None:
        """SGLang reads the width of a draft extend from its process-wide config."""
        with get_spec().override(speculative_num_draft_tokens=commit_width):
            self.worker.init_attention_backends()

    def init_cuda_graphs(self, commit_width: int) -> None:
        """See :meth:`init_attention_backends`."""
        with get_spec().override(speculative_num_draft_tokens=commit_width):
            self.worker.init_cuda_graphs()

    def prefill(self, batch: Any, captured: torch.Tensor, state: EagleDraftInput, kv_loc_plan: Any) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`; runs the draft over the chunk."""
        with draft_tp_context(self.worker.parallel_layout):
            start = self.worker._draft_extend_for_prefill(
                batch, self._columns(captured), state.bonus_tokens, None, kv_loc_plan=kv_loc_plan
            )
        state.topk_p, state.topk_index = start.topk_p, start.topk_index
        state.hidden_states = start.hidden_states

    def draft(self, batch: Any) -> Any:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        with draft_tp_context(self.worker.parallel_layout):
            return self.worker.draft(batch)

    def commit(self, batch: Any, rows: CommittedRows, state: EagleDraftInput) -> None:
        """Write K/V of the accepted rows, and put the next draft's start into ``state``.

        Row j pairs the target's features at position p with the token at p + 1.
        """
        bs, width = rows.next_tokens.shape
        last = torch.arange(bs, device=rows.lens.device) * width + rows.lens.to(torch.int64) - 1
        batch.out_cache_loc = rows.window.write_virtual
        with draft_tp_context(self.worker.parallel_layout):
            forward_batch = prepare_for_draft_extend(
                self._extend_input(rows, last),
                batch,
                rows.next_tokens.reshape(-1),
                width,
                self.runner,
                self.worker.cuda_graph_runner_for_draft_extend,
                return_hidden_states_before_norm=False,
                kv_loc_plan=rows.window,
            )
            output = self._extend(forward_batch, last)
        probs = renorm_draft_probs(output.next_token_logits, batch.sampling_info, False)
        state.topk_p, state.topk_index = fast_topk(probs, self.topk, dim=-1)
        state.hidden_states = output.hidden_states

    def skip(self, state: EagleDraftInput) -> None:
        """Zeros of the right shape: SGLang's filter, merge and overlap relay index these fields."""
        bs, device = state.bonus_tokens.shape[0], state.bonus_tokens.device
        hidden_size, dtype = get_draft_recurrent_hidden_state_spec(self.runner)
        state.topk_p = torch.zeros((bs, self.topk), dtype=torch.float32, device=device)
        state.topk_index = torch.zeros((bs, self.topk), dtype=torch.int64, device=device)
        state.hidden_states = torch.zeros((bs, hidden_size), dtype=dtype, device=device)

    def _extend_input(self, rows: CommittedRows, last: torch.Tensor) -> EagleDraftExtendInput:
        features = self._columns(rows.features.reshape(-1, rows.features.shape[-1]))
        return EagleDraftExtendInput(
            hidden_states=features,
            num_correct_drafts=rows.lens - 1,
            num_accept_tokens=rows.lens,
            num_tokens_per_req=rows.width,
            num_tokens_for_logprob_per_req=1,
            select_index=last,  # the head runs on these rows only
        )

    def _extend(self, forward_batch: Any, last: torch.Tensor) -> Any:
        """Run the extend; logits and hidden states of each request's last accepted row."""
        graph_runner = self.worker.cuda_graph_runner_for_draft_extend
        if graph_runner and graph_runner.can_run_graph(forward_batch):
            return graph_runner.execute(forward_batch, last)
        output = self.runner.forward(forward_batch).logits_output
        output.hidden_states = output.hidden_states[last]
        return output

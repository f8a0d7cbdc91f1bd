"""DFlash: one bidirectional forward over [bonus token, masks] drafts a whole block.

The draft has no embedding and no head: both are the target's. Its context K/V
are projections of the target's captured states and of nothing else, so bringing
it up to date runs no attention and no MLP.

Source: the DFlash model cards and SGLang 0.5.23 ``models/dflash.py``,
``speculative/dflash_worker_v2.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.draft_worker_common import make_draft_block_spec_info
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from whiflash_sglang.drafters.base import Activate, VerifyShape
from whiflash_sglang.drafters.chain import chain_verify_input
from whiflash_sglang.drafters.configs import DFlashShape
from whiflash_sglang.drafters.context_kv import write_kv
from whiflash_sglang.features import FeatureColumns
from whiflash_sglang.rounds import ContextRows, window_plan, window_positions
from whiflash_sglang.vocabulary import TargetVocabulary


class DFlashDrafter:
    """Block-diffusion drafter: a chain of ``block_size - 1`` tokens a round."""

    name = "dflash"
    needs_last_row = False
    expected: torch.Tensor | None = None

    def __init__(
        self,
        worker: Any,
        target_worker: Any,
        shape: DFlashShape,
        columns: FeatureColumns,
        vocabulary: TargetVocabulary,
    ) -> None:
        self.worker = worker
        self._target_worker = target_worker
        self._mask_token_id = shape.mask_token_id
        self._columns = columns
        self._vocabulary = vocabulary
        self._block = shape.block_size
        self.shapes = self._shapes()
        self._block_spec_info = make_draft_block_spec_info(
            draft_token_num=shape.block_size, device=target_worker.device
        )
        # The model asks this attribute for embeddings where it has none of its own.
        # Handing it input_embeds instead would cast them to bfloat16 on the way.
        worker.model_runner.model.forward_embed = vocabulary.embed

    @property
    def runner(self) -> Any:
        """The draft's ModelRunner."""
        return self.worker.model_runner

    def alloc_memory_pool(self, **pools: Any) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        self.worker.alloc_memory_pool(**pools)

    def init_attention_backends(self) -> None:
        """Its attention backend runs blocks, of this drafter's own size."""
        with get_spec().override(speculative_num_draft_tokens=self._block):
            self.worker.init_attention_backends()

    def init_cuda_graphs(self) -> None:
        """The block forward runs eagerly; the call sets up attributes that a forward reads."""
        with get_spec().override(speculative_num_draft_tokens=self._block):
            self.worker.init_cuda_graphs(capture_decode_cuda_graph=False)

    def write_context(self, rows: ContextRows) -> None:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`; all layers, from the fused features."""
        model, slots = self.runner.model, rows.slots(self.runner)
        context = model.project_target_hidden(self._columns(rows.features))
        for layer in model.layers:
            hidden = model.prepare_context_hidden_for_kv(layer, context)
            kv = torch.cat(layer.self_attn.kv_proj_only(hidden), dim=-1)
            write_kv(self.runner, layer.self_attn, kv, rows.positions, slots)

    def begin(self, batch: Any, last: ContextRows) -> None:
        """A block starts from the bonus token and the context; nothing to do."""

    def draft(self, batch: Any, activate: Activate) -> Any:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        activate(self.shapes[-1])
        drafted = self._drafted_hidden(batch)
        tokens = self._vocabulary.argmax(drafted.flatten(0, 1))
        return chain_verify_input(batch, tokens.view(len(drafted), self._block - 1), self._target_worker)

    def _shapes(self) -> tuple[VerifyShape, ...]:
        return (VerifyShape(width=self._block, topk=1, depth=self._block - 1),)

    def _drafted_hidden(self, batch: Any) -> torch.Tensor:
        """The draft's hidden states [requests, block - 1, hidden_size] at the masks."""
        hidden = self.runner.forward(self._block_batch(batch)).logits_output.hidden_states
        return hidden.view(len(batch.seq_lens), self._block, -1)[:, 1:]

    def _block_batch(self, batch: Any) -> ForwardBatch:
        """The forward over [bonus token, mask, mask, ...] of every request."""
        bs, width = len(batch.seq_lens), self._block
        block = torch.full((bs, width), self._mask_token_id, dtype=torch.int64, device=batch.device)
        block[:, 0] = batch.spec_info.bonus_tokens
        seq_lens_cpu = batch.seq_lens_cpu
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=bs,
            input_ids=block.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=batch.seq_lens,
            out_cache_loc=None,
            seq_lens_sum=None if seq_lens_cpu is None else int(seq_lens_cpu.sum()),
            seq_lens_cpu=seq_lens_cpu,
            positions=window_positions(batch.seq_lens, width),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            global_num_token_non_padded_cpu=bs * width,
        )
        window = window_plan(batch, width, self._target_worker)
        window.bind(forward_batch, self.runner.kv_index_translator)
        return forward_batch

"""Attention on the CPU for plain decoding, tree verify, DFlash blocks and EAGLE's multi-step drafts.

Every case is the same computation: the queries of one request against the K/V
of a list of its slots, under a bool mask. SGLang's ``torch_native`` backend has
neither a tree mask nor a multi-step draft decode; this one takes its place
(and its name) on a machine without a GPU.

Source of the slot layouts: SGLang 0.5.23, ``speculative/eagle_worker_common.py``
(``prepare_for_draft``) and ``layers/attention/intel_amx_backend.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.model_executor.forward_batch_info import ForwardBatch


class RequestView(NamedTuple):
    """What the queries of one request attend to in one forward."""

    queries: slice
    slots: torch.Tensor  # int64 [keys]
    mask: torch.Tensor | None  # bool [queries, keys]; None: every query sees every key
    block_mask: torch.Tensor | None  # the same for ENCODER_ONLY layers (DFlash's block)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
) -> torch.Tensor:
    """Grouped-query attention of one request.

    Args:
        query: [queries, q_heads, d].
        keys, values: [n, kv_heads, d]; q_heads is a multiple of kv_heads.
        mask: bool [queries, n], True where visible; None for all.

    Returns:
        [queries, q_heads, d].
    """
    count, q_heads, head_dim = query.shape
    kv_heads = keys.shape[1]
    group = q_heads // kv_heads
    # Fold the heads that share a K/V head into the query rows: no K/V is repeated.
    folded = query.view(count, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    folded = folded.reshape(1, kv_heads, group * count, head_dim)
    if mask is not None:
        mask = mask.repeat(group, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        folded,
        keys.transpose(0, 1).unsqueeze(0).to(query.dtype),
        values.transpose(0, 1).unsqueeze(0).to(query.dtype),
        attn_mask=mask,
        scale=scaling,
    )
    out = out.view(kv_heads, group, count, -1).permute(2, 0, 1, 3)
    return out.reshape(count, q_heads, -1)


class CpuAttnBackend(TorchNativeAttnBackend):
    """Extend (prefix + causal), verify (prefix + tree mask or block) and decode."""

    def __init__(self, model_runner) -> None:
        super().__init__(model_runner)
        self.max_context_len = model_runner.model_config.context_len
        self._views: list[RequestView] = []

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Resolve each request's slots and masks once per forward."""
        super().init_forward_metadata(forward_batch)
        mode = forward_batch.forward_mode
        if mode.is_idle():
            self._views = []
        elif mode.is_decode():
            self._views = self._decode_views(forward_batch)
        elif mode.is_target_verify():
            self._views = self._verify_views(forward_batch)
        else:
            self._views = self._extend_views(forward_batch)

    def update_verify_buffers_to_fill_after_draft(self, spec_info, cuda_graph_bs) -> None:
        """Nothing is planned ahead of the draft here."""

    def forward_decode(self, q, k, v, layer: RadixAttention, forward_batch, save_kv_cache=True, **kwargs):
        """One query row per request. q: [rows, heads * d]; returns the same shape."""
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, kwargs)

    def forward_extend(self, q, k, v, layer: RadixAttention, forward_batch, save_kv_cache=True, **kwargs):
        """Several query rows per request. q: [rows, heads * d]; returns the same shape."""
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, kwargs)

    def _forward(self, q, k, v, layer, forward_batch, save_kv_cache, unsupported):
        _refuse_unsupported(layer, unsupported)
        if save_kv_cache and k is not None and v is not None:
            location = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            self.token_to_kv_pool.set_kv_buffer(layer, location, k, v)
        key_buffer = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        value_buffer = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        rows = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = rows.new_zeros((rows.shape[0], layer.tp_q_head_num, layer.v_head_dim))
        is_block = layer.attn_type == AttentionType.ENCODER_ONLY
        for view in self._views:
            out[view.queries] = attend(
                rows[view.queries],
                key_buffer[view.slots],
                value_buffer[view.slots],
                view.block_mask if is_block else view.mask,
                layer.scaling,
            )
        return out.view(q.shape[0], -1)

    def _slots(self, row: int, length: int) -> torch.Tensor:
        return self.req_to_token_pool.req_to_token[row, :length].to(torch.int64)

    def _decode_views(self, forward_batch: ForwardBatch) -> list[RequestView]:
        rows = forward_batch.req_pool_indices.tolist()
        lengths = forward_batch.seq_lens.tolist()
        return [
            RequestView(slice(i, i + 1), self._slots(row, length), None, None)
            for i, (row, length) in enumerate(zip(rows, lengths, strict=True))
        ]

    def _extend_views(self, forward_batch: ForwardBatch) -> list[RequestView]:
        rows = forward_batch.req_pool_indices.tolist()
        prefixes = forward_batch.extend_prefix_lens.tolist()
        extends = forward_batch.extend_seq_lens.tolist()
        views, start = [], 0
        for row, prefix, extend in zip(rows, prefixes, extends, strict=True):
            mask = None if extend == 1 else _prefix_and(prefix, _causal(extend))
            slots = self._slots(row, prefix + extend)
            views.append(RequestView(slice(start, start + extend), slots, mask, None))
            start += extend
        return views

    def _verify_views(self, forward_batch: ForwardBatch) -> list[RequestView]:
        spec_info = forward_batch.spec_info
        width = spec_info.draft_token_num
        rows = forward_batch.req_pool_indices.tolist()
        prefixes = forward_batch.seq_lens.tolist()
        tree = spec_info.custom_mask
        trees = None if tree is None else tree[: len(rows) * width * width].view(-1, width, width)
        views = []
        for i, (row, prefix) in enumerate(zip(rows, prefixes, strict=True)):
            inner = _causal(width) if trees is None else trees[i]
            views.append(
                RequestView(
                    slice(i * width, (i + 1) * width),
                    self._slots(row, prefix + width),
                    None if width == 1 else _prefix_and(prefix, inner),
                    None,
                )
            )
        return views


class CpuMultiStepDraftBackend:
    """One backend per draft step of EAGLE: branch b sees the prefix and its own earlier drafts.

    A request's draft slots follow its prefix, branch after branch
    (``topk * num_steps`` of them, page size 1 or top-k 1).
    """

    def __init__(self, model_runner, topk: int, num_steps: int) -> None:
        self.topk, self.num_steps = topk, num_steps
        self.attn_backends = [CpuAttnBackend(model_runner) for _ in range(num_steps - 1)]

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Views of every step, from the lengths before the draft."""
        rows = forward_batch.req_pool_indices.tolist()
        prefixes = forward_batch.seq_lens.tolist()
        for step, backend in enumerate(self.attn_backends):
            backend._views = [
                self._view(backend, i, row, prefix, step)
                for i, (row, prefix) in enumerate(zip(rows, prefixes, strict=True))
            ]

    def _view(self, backend: CpuAttnBackend, i: int, row: int, prefix: int, step: int):
        """Only slots that some step has written are read: a masked slot still meets a zero weight."""
        written = torch.arange(self.topk * self.num_steps).view(self.topk, self.num_steps)
        slots = backend._slots(row, prefix + self.topk * self.num_steps)
        slots = torch.cat([slots[:prefix], slots[prefix:][written[:, : step + 1].flatten()]])
        own = torch.eye(self.topk, dtype=torch.bool).repeat_interleave(step + 1, dim=1)
        mask = _prefix_and(prefix, own)
        return RequestView(slice(i * self.topk, (i + 1) * self.topk), slots, mask, None)


def _causal(n: int) -> torch.Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril_()


def _prefix_and(prefix: int, inner: torch.Tensor) -> torch.Tensor:
    """Mask bool [queries, prefix + inner keys]: all of the prefix, then ``inner``."""
    return torch.cat([torch.ones(inner.shape[0], prefix, dtype=torch.bool), inner], dim=1)


def _refuse_unsupported(layer: RadixAttention, arguments: dict) -> None:
    given = sorted(name for name, value in arguments.items() if value is not None)
    window = layer.sliding_window_size
    if given or layer.is_cross_attention or (window is not None and window > -1) or layer.logit_cap:
        raise NotImplementedError(
            "the CPU attention backend has no sliding window, logit cap, attention sinks or "
            f"cross attention (layer {layer.layer_id}: window={window}, "
            f"logit_cap={layer.logit_cap}, arguments={given})"
        )

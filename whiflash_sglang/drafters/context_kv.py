"""K/V of context rows by projections alone, into a draft's pool."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.rotary_embedding import RotaryEmbedding
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool
from sglang.srt.speculative.dflash_utils import can_dflash_slice_qkv_weight
from torch.nn import functional as F

from whiflash_kernels.checks import FLOATS
from whiflash_kernels.kv_only import kv_only


def project_kv(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    """K and V side by side, [n, 2 * kv_size], of a fused ``qkv_proj`` for rows [n, in_size].

    An unquantised projection runs its K and V rows only; any other runs whole, and Q is dropped.
    """
    q_size, projection = attention.q_size, attention.qkv_proj
    if can_dflash_slice_qkv_weight(projection)[0]:
        bias = None if projection.bias is None else projection.bias[q_size:]
        return F.linear(hidden, projection.weight[q_size:], bias)
    return projection(hidden)[0][..., q_size:]


def write_kv(
    runner: Any, attention: Any, kv: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
) -> None:
    """Normalise and rotate K, and put K and V of one layer into a ModelRunner's pool.

    In one kernel where norm, rotation and pool are the usual ones, else by SGLang's own modules.

    Args:
        kv: [n, 2 * kv_size].
        positions, slots: int64 [n].
    """
    pool, layer = runner.token_to_kv_pool, attention.attn
    k_norm, rotary = getattr(attention, "k_norm", None), attention.rotary_emb
    if _is_usual(k_norm, rotary, pool, layer):
        at = layer.layer_id - pool.start_layer
        weight, eps = (None, 0.0) if k_norm is None else (k_norm.weight, k_norm.variance_epsilon)
        buffers = pool.k_buffer[at], pool.v_buffer[at]
        return kv_only(kv, weight, eps, rotary.cos_sin_cache, positions, slots, *buffers)
    k, v = kv.chunk(2, dim=-1)
    shape = -1, attention.num_kv_heads, attention.head_dim
    if k_norm is not None:
        k = k_norm(k.reshape(-1, attention.head_dim)).view(len(kv), -1)
    # The rotary embedding asks for a Q, which it may write to.
    _, k = rotary(positions, torch.empty_like(k), k.contiguous())
    location = KVWriteLoc(slots, physical=True)
    pool.set_kv_buffer(layer, location, k.view(shape), v.reshape(shape), layer.k_scale, layer.v_scale)


def _is_usual(k_norm: Any, rotary: Any, pool: Any, layer: Any) -> bool:
    """RMSNorm or none, plain RoPE in halves, and a pool of unscaled rows [slots, heads, d]."""
    return (
        (k_norm is None or (type(k_norm) is RMSNorm and k_norm.variance_size_override is None))
        and type(rotary) is RotaryEmbedding
        and rotary.is_neox_style
        and type(pool) is MHATokenToKVPool
        and layer.k_scale is None
        and all(b.dim() == 3 and b.dtype in FLOATS for b in (pool.k_buffer[0], pool.v_buffer[0]))
    )

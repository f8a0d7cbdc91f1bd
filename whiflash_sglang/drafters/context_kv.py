"""K/V of context rows by projections alone, into a draft's pool."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.speculative.dflash_utils import can_dflash_slice_qkv_weight
from torch.nn import functional as F


def project_kv(attention: Any, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V, [n, kv_size] each, of a fused ``qkv_proj`` for rows [n, in_size].

    An unquantised projection runs its K and V rows only; any other runs whole, and Q is dropped.
    """
    q_size, kv_size = attention.q_size, attention.kv_size
    projection = attention.qkv_proj
    if can_dflash_slice_qkv_weight(projection)[0]:
        bias = None if projection.bias is None else projection.bias[q_size:]
        k, v = F.linear(hidden, projection.weight[q_size:], bias).split([kv_size, kv_size], dim=-1)
        return k, v
    _, k, v = projection(hidden)[0].split([q_size, kv_size, kv_size], dim=-1)
    return k, v


def rotate_k(attention: Any, positions: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """RoPE on K [n, kv_size] alone; the rotary embedding asks for a Q, which it may write to."""
    _, k = attention.rotary_emb(positions, torch.empty_like(k), k.contiguous())
    return k


def write_kv(runner: Any, attention: Any, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Put K and V [n, kv_size] of one layer into slots int64 [n] of a ModelRunner's pool."""
    shape = -1, attention.num_kv_heads, attention.head_dim
    runner.token_to_kv_pool.set_kv_buffer(
        attention.attn,
        KVWriteLoc(slots, physical=True),
        k.view(shape),
        v.view(shape),
        attention.attn.k_scale,
        attention.attn.v_scale,
    )

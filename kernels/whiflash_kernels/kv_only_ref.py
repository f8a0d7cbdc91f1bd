"""Plain-torch references of :mod:`whiflash_kernels.kv_only`."""

from __future__ import annotations

import torch


def kv_only_ref(
    kv: torch.Tensor,
    k_norm_weight: torch.Tensor | None,
    eps: float,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
) -> None:
    """See :func:`whiflash_kernels.kv_only.kv_only`."""
    total, heads, d = k_buffer.shape
    written = (slots >= 0) & (slots < total) & (positions >= 0) & (positions < cos_sin_cache.shape[0])
    k, v = kv[written].view(-1, 2, heads, d).unbind(1)
    k = k.float()
    if k_norm_weight is not None:
        k = _rms_norm(k, k_norm_weight, eps)
    k = _rotate(k, cos_sin_cache[positions[written]].float())
    k_buffer[slots[written]] = k.to(k_buffer.dtype)
    v_buffer[slots[written]] = v.to(v_buffer.dtype)


def fused_norm_ref(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See :func:`whiflash_kernels.kv_only.fused_norm`."""
    return _rms_norm(x.float(), weight, eps).to(x.dtype)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight.float()


def _rotate(k: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """Rotate the first columns of K [n, heads, d] by cos_sin [n, rot_dim]; the others pass."""
    cos, sin = cos_sin[:, None].chunk(2, dim=-1)
    half = cos.shape[-1]
    x, y, passed = k.split([half, half, k.shape[-1] - 2 * half], dim=-1)
    return torch.cat([x * cos - y * sin, y * cos + x * sin, passed], dim=-1)

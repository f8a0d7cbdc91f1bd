"""The pieces both drafters are made of, as plain differentiable torch; shapes and names are the checkpoints'."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., size] to the same shape and dtype."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden] to [..., hidden]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Projections(nn.Module):
    """q, k, v and output projections of grouped-query attention; reads ``inputs`` columns."""

    def __init__(self, config: dict, inputs: int) -> None:
        super().__init__()
        self.head_dim = config["head_dim"]
        q_rows = config["num_attention_heads"] * self.head_dim
        kv_rows = config["num_key_value_heads"] * self.head_dim
        self.q_proj = nn.Linear(inputs, q_rows, bias=False)
        self.k_proj = nn.Linear(inputs, kv_rows, bias=False)
        self.v_proj = nn.Linear(inputs, kv_rows, bias=False)
        self.o_proj = nn.Linear(q_rows, config["hidden_size"], bias=False)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, heads * head_dim] to [rows, heads, head_dim]."""
        return x.unflatten(-1, (-1, self.head_dim))


class Rotary:
    """Neox-style rotary embedding."""

    def __init__(self, head_dim: int, theta: float) -> None:
        half = head_dim // 2
        self._frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)

    def __call__(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate x [rows, heads, head_dim] by positions int64 [rows]."""
        angles = positions[:, None].float() * self._frequencies
        cos, sin = angles.cos()[:, None].to(x.dtype), angles.sin()[:, None].to(x.dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def by_kv_head(q: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[rows, heads, d] to [kv_heads, group, rows, d], scaled for attention."""
    rows, heads, d = q.shape
    return q.view(rows, kv_heads, heads // kv_heads, d).permute(1, 2, 0, 3) * d**-0.5


def soft_cross_entropy(logits: torch.Tensor, law: torch.Tensor) -> torch.Tensor:
    """Cross entropy float32 [rows] of logits [rows, V] against the target's law [rows, V]."""
    return _SoftCrossEntropy.apply(logits, law)


class _SoftCrossEntropy(torch.autograd.Function):
    """Its gradient is softmax(logits) - law; autograd's own chain would pass over the vocabulary twice as often."""

    @staticmethod
    def forward(ctx, logits: torch.Tensor, law: torch.Tensor) -> torch.Tensor:
        log_p = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        ctx.save_for_backward(log_p, law)
        ctx.dtype = logits.dtype
        return -(log_p * law).sum(dim=-1)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        log_p, law = ctx.saved_tensors
        return (log_p.exp_().sub_(law).mul_(gradient[:, None])).to(ctx.dtype), None

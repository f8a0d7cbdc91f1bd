"""The definition of :func:`whiflash_kernels.tree_verify_sample.tree_verify_sample` in plain torch."""

from __future__ import annotations

import torch

from whiflash_kernels.checks import (
    FLOATS,
    INTEGERS,
    require,
    require_dtype,
    require_same_device,
    require_shape,
    require_tree,
)
from whiflash_kernels.tree_verify_greedy_ref import follow

_MASK = 0xFFFFFFFF


def tree_verify_sample_ref(
    candidates: torch.Tensor,
    logits: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    max_depth: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Accept index int32 [bs, max_depth + 1], accept lengths int32 [bs], bonus tokens int64 [bs].

    Arguments and errors are those of ``tree_verify_sample``.
    """
    arguments = (candidates, logits, next_token, next_sibling, temperatures, top_ks, top_ps, min_ps)
    logits = check_sample(*arguments, seeds, positions, max_depth)
    vocabulary = torch.arange(logits.shape[2], device=logits.device)
    noise = gumbel_noise(seeds[:, None, None], positions[:, :, None], vocabulary)
    scores = logits.double() / temperatures.double()[:, None, None] + noise
    scores.masked_fill_(~allowed_ids(logits, temperatures, top_ks, top_ps, min_ps), -torch.inf)
    return follow(candidates, scores.argmax(dim=-1), next_token, next_sibling, max_depth)


def check_sample(
    candidates: torch.Tensor,
    logits: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    max_depth: int,
) -> torch.Tensor:
    """The logits as a view [bs, n, V], once every argument fits; else ValueError."""
    require_tree(candidates, next_token, next_sibling, max_depth)
    bs, n = candidates.shape
    given = {
        "temperatures": temperatures,
        "top_ks": top_ks,
        "top_ps": top_ps,
        "min_ps": min_ps,
        "seeds": seeds,
    }
    per_request = {name: tensor for name, tensor in given.items() if tensor is not None}
    dtypes = {"top_ks": INTEGERS, "seeds": (torch.int64,)}
    for name, tensor in per_request.items():
        require_shape(name, tensor, (bs,))
        require_dtype(name, tensor, dtypes.get(name, (torch.float32,)))
    require_shape("positions", positions, (bs, n))
    require_dtype("positions", positions, (torch.int64,))
    require_dtype("logits", logits, FLOATS)
    width = logits.shape[-1] if logits.dim() else 0
    wide = logits.shape in ((bs * n, width), (bs, n, width)) and width > 0
    require(wide, f"logits: shape {tuple(logits.shape)}, expected {(bs * n, 'V')} or {(bs, n, 'V')}, V > 0")
    require_same_device(candidates=candidates, logits=logits, positions=positions, **per_request)
    return logits if logits.dim() == 3 else logits.unflatten(0, (bs, n))


def allowed_ids(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
) -> torch.Tensor:
    """bool [bs, n, V]: the ids that a request's filters leave of logits [bs, n, V]."""
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    counts = kept_counts(ordered, temperatures, top_ks, top_ps, min_ps)
    kept = torch.arange(logits.shape[2], device=logits.device) < counts.unsqueeze(-1)
    return torch.zeros_like(kept).scatter(-1, ids, kept)


def kept_counts(
    ordered: torch.Tensor,
    temperatures: torch.Tensor,
    top_ks: torch.Tensor | None,
    top_ps: torch.Tensor | None,
    min_ps: torch.Tensor | None,
) -> torch.Tensor:
    """int64 [bs, n], at least 1: how many of the falling logits [bs, n, V] the filters leave."""
    probs = torch.softmax(ordered.float() / temperatures[:, None, None], dim=-1)
    kept = torch.ones_like(probs, dtype=torch.bool)
    if top_ks is not None:
        rank = torch.arange(ordered.shape[2], device=ordered.device)
        kept &= (rank < top_ks[:, None, None]) | (top_ks <= 0)[:, None, None]
    if top_ps is not None:
        kept &= probs.cumsum(dim=-1) - probs <= top_ps[:, None, None]
    if min_ps is not None:
        kept &= probs >= probs[..., :1] * min_ps[:, None, None]
    return kept.sum(dim=-1).clamp(min=1)


def gumbel_noise(seeds: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float64, keyed by int64 (seed, position, token), which broadcast."""
    hashed = murmur3(seeds, positions, tokens)
    exponential = -torch.log(hashed.double() / _MASK)
    noise = -torch.log(exponential.clamp(min=2.0**-32))
    return torch.where(hashed == 0, -709.0, noise)


def murmur3(seeds: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """MurmurHash3 (32 bits, start 0) of (64-bit seed, 32-bit position, 32-bit token), as int64."""
    state = torch.zeros((), dtype=torch.int64, device=seeds.device)
    for key in (seeds, seeds >> 32, positions, tokens):
        key = _rotate((key & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        state = _rotate(state ^ key, 13) * 5 + 0xE6546B64 & _MASK
    state = state ^ 16  # the length in bytes
    state = (state ^ (state >> 16)) * 0x85EBCA6B & _MASK
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & _MASK
    return state ^ (state >> 16)


def _rotate(value: torch.Tensor, bits: int) -> torch.Tensor:
    """A 32-bit value in int64, rotated to the left."""
    return (value << bits | value >> (32 - bits)) & _MASK

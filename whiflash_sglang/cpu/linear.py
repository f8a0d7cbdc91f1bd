"""Linear layers whose weights are laid out for oneDNN once.

``F.linear`` lays its weights out anew in every product of several rows, which on
a CPU costs more than the product; a verify is such a product. PyTorch's own
compiler freezes weights with the same two ops (``torch/_inductor/mkldnn_ir.py``).
The products are float32, as those of ``F.linear`` are inside, whatever the dtype.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn import functional

_PACKED = "_whiflash_packed"  # on a weight: the generation it was packed in, and the packed weight
_NATIVE_ROWS = 2  # 16-bit rows up to which reading half the bytes outweighs the layout
_generation = 0


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``F.linear``, with the weight's layout kept from the first call on.

    Args:
        x: [..., k], float32, bfloat16 or float16.
        weight: [n, k], of x's dtype. Its layout takes another 4 * n * k bytes, for as long as it lives;
            call :func:`forget_layouts` after writing to it.
        bias: [n] of x's dtype, or None.

    Returns:
        [..., n] of x's dtype.
    """
    if not _gains(x, weight):
        return functional.linear(x, weight, bias)
    bias = None if bias is None else bias.float()
    rows = x.reshape(-1, x.shape[-1]).float()
    product = torch.ops.mkldnn._linear_pointwise(rows, _packed(weight), bias, "none", [], "")
    return product.view(*x.shape[:-1], len(weight)).to(x.dtype)


def forget_layouts() -> None:
    """Every weight is laid out again at its next use: one of them may have been written to."""
    global _generation
    _generation += 1


def _gains(x: torch.Tensor, weight: torch.Tensor) -> bool:
    if not _has_onednn() or x.dtype != weight.dtype or x.numel() == 0:
        return False
    if x.dtype == torch.float32:
        return True
    # A CPU with 16-bit products needs no detour through float32.
    return not _multiplies_16_bit() and x.numel() // x.shape[-1] > _NATIVE_ROWS


def _packed(weight: torch.Tensor) -> torch.Tensor:
    generation, packed = getattr(weight, _PACKED, (None, None))
    if generation != _generation:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().contiguous(), None)
        setattr(weight, _PACKED, (_generation, packed))
    return packed


@cache
def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


@cache
def _multiplies_16_bit() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def install() -> None:
    """Let the unquantised layers and heads of an SGLang process use :func:`linear`."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    updater = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
    for source in ("disk", "distributed", "tensor", "ipc"):
        HookRegistry.register(f"{updater}.update_weights_from_{source}", _after_update, HookType.AFTER)
    layers = "sglang.srt.layers"
    method = f"{layers}.quantization.unquant.UnquantizedLinearMethod.apply"
    head = f"{layers}.logits_processor.LogitsProcessor._compute_lm_head"
    candidates = "sglang.srt.models.dflash._project_candidate_logits"
    HookRegistry.register(method, _apply, HookType.AROUND)
    HookRegistry.register(head, _compute_head, HookType.AROUND)
    HookRegistry.register(candidates, _project_candidates, HookType.AROUND)
    HookRegistry.apply_hooks()


def _after_update(result: Any, *args: Any, **kwargs: Any) -> None:
    forget_layouts()


def _apply(original: Any, method: Any, layer: Any, x: torch.Tensor, bias: Any = None) -> torch.Tensor:
    """Around ``UnquantizedLinearMethod.apply``."""
    return linear(x, layer.weight, bias)


def _compute_head(
    original: Any, processor: Any, hidden: torch.Tensor, head: Any, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Around ``LogitsProcessor._compute_lm_head``: a plain head of the hidden states' dtype."""
    from sglang.srt.layers.logits_processor import should_apply_lm_head_quant_method

    if (
        hasattr(head, "set_lora")
        or not hasattr(head, "weight")
        or should_apply_lm_head_quant_method(head, getattr(head, "quant_method", None))
        or processor.use_fp32_lm_head
        or processor.rl_on_policy_target is not None
    ):
        return original(processor, hidden, head, *args, **kwargs)
    return linear(hidden.to(head.weight.dtype), head.weight)


def _project_candidates(
    original: Any, hidden: torch.Tensor, lm_head: Any, *, num_org: int, use_quant_head: bool
) -> torch.Tensor:
    """Around ``_project_candidate_logits`` of DFlash: the head, without its padding."""
    if use_quant_head:
        return original(hidden, lm_head, num_org=num_org, use_quant_head=True)
    return linear(hidden.to(lm_head.weight.dtype), lm_head.weight)[:, :num_org].contiguous()

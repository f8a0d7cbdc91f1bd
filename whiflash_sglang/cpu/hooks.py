"""Puts the CPU attention backend where SGLang looks for ``torch_native``."""

from __future__ import annotations

from typing import Any

NAME = "torch_native"  # the name SGLang's own platform checks know


def install() -> None:
    """Register the backend, and let EAGLE's draft backends be built from it."""
    from sglang.srt.arg_groups.choices import (
        DRAFT_ATTENTION_BACKEND_CHOICES,
        add_draft_attention_backend_choices,
    )
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if NAME not in DRAFT_ATTENTION_BACKEND_CHOICES:
        add_draft_attention_backend_choices([NAME])
    register_attention_backend(NAME)(_create_attention_backend)
    factory = "sglang.srt.speculative.draft_utils.DraftBackendFactory"
    HookRegistry.register(f"{factory}._create_backend", _create_backend, HookType.AROUND)


def install_for_decoding() -> None:
    """Keep DFlash's model on torch ops."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    dflash = "sglang.srt.models.dflash"
    HookRegistry.register(f"{dflash}.DFlashAttention.__init__", _use_torch_qk_norm, HookType.AFTER)
    HookRegistry.register(f"{dflash}._radix_topk", _torch_topk, HookType.REPLACE)


def _torch_topk(scores: Any, k: int) -> Any:
    """In place of ``_radix_topk``, which is FlashInfer's where that is installed."""
    return scores.topk(k, dim=-1)


def _use_torch_qk_norm(result: None, attention: Any, *args: Any, **kwargs: Any) -> None:
    """After ``DFlashAttention.__init__``: its fused QK norm and RoPE is a Triton kernel."""
    attention.use_table_qk_norm_rope = False


def _create_attention_backend(runner: Any) -> Any:
    from whiflash_sglang.cpu import linear
    from whiflash_sglang.cpu.attention import CpuAttnBackend

    linear.install()  # here, since only a process that computes gets here, with any algorithm
    return CpuAttnBackend(runner)


def _create_backend(
    original: Any, factory: Any, backend_name: str, backend_map: dict, *args, **kwargs
) -> Any:
    """Add our backend to the fixed table of a ``DraftBackendFactory``."""
    from whiflash_sglang.cpu.attention import CpuAttnBackend, CpuMultiStepDraftBackend

    def multi_step() -> tuple[str, Any]:
        runner, steps = factory.draft_model_runner, factory.speculative_num_steps
        return NAME, CpuMultiStepDraftBackend(runner, factory.topk, steps)

    def single() -> tuple[str, Any]:
        return NAME, CpuAttnBackend(factory.draft_model_runner)

    # Only the decode table is built with stamps_children: it holds per-step containers.
    ours = multi_step if kwargs.get("stamps_children") else single
    return original(factory, backend_name, {**backend_map, NAME: ours}, *args, **kwargs)

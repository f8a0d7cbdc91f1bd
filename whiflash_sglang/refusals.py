"""SGLang arguments that WHIFLASH refuses, each with the flag, the value and the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """One argument, the values refused, and why."""

    field: str
    refused: Callable[[Any], bool]
    reason: str

    @property
    def flag(self) -> str:
        """The command-line spelling of the field."""
        return "--" + self.field.replace("_", "-")


def _is_set(value: Any) -> bool:
    return value is not None and value is not False


REFUSALS = (
    Refusal("pp_size", lambda v: v > 1, "pipeline parallelism is not supported"),
    Refusal("attn_dp_size", lambda v: (v or 1) > 1, "DP attention is not supported"),
    Refusal("enable_dp_attention", _is_set, "DP attention is not supported"),
    Refusal(
        "disaggregation_mode",
        lambda v: v not in (None, "null"),
        "prefill/decode disaggregation is not supported",
    ),
    Refusal("enable_mixed_chunk", _is_set, "mixed chunked prefill is not supported"),
    Refusal("enable_multimodal", _is_set, "multimodal input is not supported"),
    Refusal("enable_hierarchical_cache", _is_set, "the hierarchical cache knows of one draft KV pool only"),
    Refusal(
        "enable_unified_cache_external_linker",
        _is_set,
        "external KV caches know of one draft KV pool only",
    ),
    Refusal("enable_lmcache", _is_set, "external KV caches know of one draft KV pool only"),
    Refusal("enable_hisparse", _is_set, "hierarchical sparse attention is not supported"),
    Refusal("speculative_adaptive", _is_set, "the router chooses the width of a round"),
    Refusal(
        "speculative_use_rejection_sampling",
        _is_set,
        "drafts are deterministic here and verified against the target's own samples",
    ),
    Refusal(
        "speculative_use_block_verification",
        _is_set,
        "drafts are deterministic here and verified against the target's own samples",
    ),
    Refusal(
        "speculative_accept_threshold_single",
        lambda v: v is not None and v < 1.0,
        "a threshold below 1 changes the output; WHIFLASH is lossless",
    ),
    Refusal(
        "speculative_accept_threshold_acc",
        lambda v: v is not None and v < 1.0,
        "a threshold below 1 changes the output; WHIFLASH is lossless",
    ),
    Refusal("enable_two_batch_overlap", _is_set, "two-batch overlap is not supported"),
    Refusal("enable_pdmux", _is_set, "prefill/decode multiplexing is not supported"),
    Refusal("enable_multi_layer_eagle", _is_set, "the EAGLE-3 draft is one model run step by step"),
    Refusal("enable_return_hidden_states", _is_set, "the captured states are the drafters' layers"),
    Refusal("enable_lora", _is_set, "LoRA adapters on the target are not supported"),
    Refusal("enable_watermark", _is_set, "a watermark is applied by SGLang's own verify only"),
    Refusal("dllm_algorithm", _is_set, "the target has to be autoregressive"),
    Refusal("speculative_draft_window_size", _is_set, "both drafters attend to the whole context"),
    Refusal("speculative_token_map", _is_set, "an EAGLE-3 draft brings its own d2t map"),
    Refusal(
        "speculative_dflash_block_size",
        _is_set,
        "the DFlash block is the one its config.json states",
    ),
)


def refuse_arguments(server_args: Any) -> None:
    """Raise for the first refused argument.

    Args:
        server_args: SGLang's arguments, or any object with those fields.

    Raises:
        ValueError: names the flag, its value and the reason.
    """
    for refusal in REFUSALS:
        value = getattr(server_args, refusal.field)
        if refusal.refused(value):
            raise ValueError(
                f"{refusal.flag} is {value!r}, which --speculative-algorithm WHIFLASH does not take: "
                f"{refusal.reason}"
            )


def refuse_target(hf_config: Any) -> None:
    """Raise for a target whose KV layout the drafters cannot share.

    Raises:
        ValueError: a sliding-window, Mamba or multimodal target.
    """
    text = hf_config.get_text_config()
    layer_types = set(getattr(text, "layer_types", None) or ())
    name = (getattr(hf_config, "architectures", None) or ["?"])[0]
    if "sliding_attention" in layer_types or getattr(text, "use_sliding_window", False):
        raise ValueError(f"--model-path: {name} has sliding-window layers, which WHIFLASH does not take")
    recurrent = {"mamba", "linear_attention", "recurrent"} & layer_types
    if recurrent or hasattr(text, "mamba_d_state") or hasattr(text, "state_size"):
        raise ValueError(f"--model-path: {name} has Mamba or recurrent layers, which WHIFLASH does not take")
    if text is not hf_config and hasattr(hf_config, "vision_config"):
        raise ValueError(f"--model-path: {name} is multimodal, which WHIFLASH does not take")

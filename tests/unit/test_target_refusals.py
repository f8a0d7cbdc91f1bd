"""Targets whose K/V the drafters cannot share are refused by kind."""

from types import SimpleNamespace

import pytest

from whiflash_sglang.refusals import refuse_target


def config(**fields):
    text = SimpleNamespace(**fields)
    text.get_text_config = lambda: text
    text.architectures = ["SomeForCausalLM"]
    return text


def test_a_plain_decoder_is_taken():
    refuse_target(config(layer_types=["full_attention"], use_sliding_window=False))
    refuse_target(config())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"layer_types": ["linear_attention"]}, "recurrent"),
        ({"mamba_d_state": 16}, "Mamba"),
        ({"state_size": 16}, "Mamba"),
    ],
)
def test_a_target_that_cannot_be_served_is_named_with_its_kind(fields, said):
    with pytest.raises(ValueError, match=rf"--model-path: SomeForCausalLM.*{said}"):
        refuse_target(config(**fields))


def test_a_multimodal_target_is_refused():
    outer = SimpleNamespace(architectures=["SomeVL"], vision_config={}, get_text_config=config)
    with pytest.raises(ValueError, match=r"SomeVL is multimodal"):
        refuse_target(outer)

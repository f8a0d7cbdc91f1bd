"""A draft that does not fit the target is refused when the arguments are read, by flag and values."""

import pytest
import torch

from engine import tiny
from whiflash_sglang.config import WhiflashConfig
from whiflash_sglang.drafters.configs import read_drafts
from whiflash_sglang.drafters.weights import check_dflash, check_eagle3


class Arguments:
    revision = None
    trust_remote_code = False

    def __init__(self):
        self.model_path = str(tiny.target())


def check(eagle=None, dflash=None):
    config = WhiflashConfig.from_mapping(
        {
            "eagle_draft": eagle or str(tiny.eagle3()),
            "dflash_draft": dflash or str(tiny.dflash()),
            "router": "alternate",
        }
    )
    drafts = read_drafts(Arguments(), config)
    check_eagle3(config, drafts)
    check_dflash(config, drafts)
    return drafts


def test_drafts_that_fit_are_read_with_their_layers_in_their_own_order(tmp_path):
    order = [27, 1, 8, 8, 15]
    path = tiny.edited(tiny.dflash(), tmp_path / "d", {"dflash_config.target_layer_ids": order})
    drafts = check(dflash=path)
    assert drafts.dflash.target_layer_ids == tuple(order)
    assert drafts.eagle3.draft_vocab_size == 8192


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"dflash_config.target_layer_ids": None}, ["no target_layer_ids"]),
        ({"block_size": None}, ["no block_size"]),
        ({"dflash_config.mask_token_id": None}, ["no mask_token_id"]),
        ({"dflash_config.mask_token_id": 49152}, ["49152", "outside"]),
        ({"dflash_config.target_layer_ids": [1, 29]}, ["29", "28"]),
        ({"dflash_config.target_layer_ids": []}, ["empty"]),
        ({"hidden_size": 128}, ["128", "64"]),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, ["DFlashDraftModel", "--whiflash-eagle-draft"]),
        ({"dflash_config.target_layer_ids": [1, 8]}, ["fc.weight", "(64, 320)", "(64, 128)"]),
        ({"num_hidden_layers": 3}, ["lacks", "layers.2."]),
    ],
)
def test_a_dflash_config_that_does_not_fit_is_refused(tmp_path, config, said):
    path = tiny.edited(tiny.dflash(), tmp_path / "d", config)
    with pytest.raises(ValueError) as refusal:
        check(dflash=path)
    message = str(refusal.value)
    assert "--speculative-draft-model-path" in message
    assert all(text in message for text in said), message


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"drop": ["d2t"]}, ["no d2t", "8192"]),
        ({"tensors": {"d2t": torch.zeros(10, dtype=torch.int64)}}, ["d2t is (10,)", "8192"]),
        ({"tensors": {"d2t": torch.full((8192,), 45000)}}, ["d2t maps", "53191", "49152"]),
        ({"tensors": {"d2t": torch.full((8192,), -5)}}, ["d2t maps", "-5"]),
        ({"drop": ["midlayer.hidden_norm.weight"]}, ["lacks layers.0.hidden_norm.weight"]),
        ({"drop": ["lm_head.weight"]}, ["lacks lm_head.weight"]),
        ({"tensors": {"fc.weight": torch.zeros(64, 128)}}, ["fc.weight is (64, 128)", "(64, 192)"]),
        ({"config": {"vocab_size": 60000}}, ["60000", "49152"]),
        ({"config": {"eagle_config.eagle_aux_hidden_state_layer_ids": [1, 2, 40]}}, ["40", "28"]),
        ({"config": {"architectures": ["DFlashDraftModel"]}}, ["Eagle3", "--speculative-draft-model-path"]),
        ({"config": {"eagle_config.use_aux_hidden_state": False}}, ["use_aux_hidden_state"]),
    ],
)
def test_an_eagle3_checkpoint_that_does_not_fit_is_refused(tmp_path, edits, said):
    path = tiny.edited(tiny.eagle3(), tmp_path / "e", **edits)
    with pytest.raises(ValueError) as refusal:
        check(eagle=path)
    message = str(refusal.value)
    assert "--whiflash-eagle-draft" in message
    assert all(text in message for text in said), message


def test_a_path_where_nothing_is_names_its_flag(tmp_path):
    with pytest.raises(ValueError, match=r"--whiflash-eagle-draft.*nowhere"):
        check(eagle=str(tmp_path / "nowhere"))


def test_a_folder_without_weights_names_its_flag(tmp_path):
    path = tiny.edited(tiny.eagle3(), tmp_path / "e")
    (tmp_path / "e" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"--whiflash-eagle-draft.*no \.safetensors"):
        check(eagle=path)

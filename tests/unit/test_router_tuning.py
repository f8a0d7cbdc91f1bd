"""A threshold tuned for rounds and round times, for the entropy router and for neural ones of either sign."""

import json

import pytest
import torch
from safetensors.torch import save_file

from whiflash_sglang.router_training.records import Records, Setting
from whiflash_sglang.router_training.round_times import RoundTimes
from whiflash_sglang.router_training.tune import tune, write_threshold

SETTING = Setting(
    target="t", pair="df-e3", positive="eagle3", negative="dflash", tree_budget=None, hidden_size=4,
    eagle_draft="e", dflash_draft="d", eagle_tree=(3, 4, 8), block_size=8, dtype="float32",
    max_new_tokens=8, sample_every=1,
)  # fmt: skip
TIMES = RoundTimes(eagle3=0.1, dflash=0.1)


def rounds(gain):
    """Records whose dAL is ``gain`` float [n]; hidden's first column and the entropy are that gain + 10."""
    n = len(gain)
    hidden = torch.zeros(n, 4)
    hidden[:, 0] = gain + 10
    nothing = torch.full((n,), float("nan"))
    return Records(
        hidden=hidden.bfloat16(), entropy=gain + 10, top1=torch.full((n,), 0.5), recent_pos=nothing,
        recent_neg=nothing, al_pos=3 + gain, al_neg=torch.full((n,), 3.0), prompt=torch.arange(n),
        position=torch.arange(n), prompts=[str(i) for i in range(n)], categories=["c"] * n,
    )  # fmt: skip


def router(folder, sign, positive):
    """delta = sign * GELU(hidden[0]), which is sign * hidden[0] for numbers around 10."""
    folder.mkdir()
    w1, w2 = torch.zeros(2, 4), torch.zeros(1, 2)
    w1[0, 0], w2[0, 0] = 1.0, sign
    save_file({"a": w1, "b": torch.zeros(2), "c": w2, "d": torch.zeros(1)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"positive": positive, "threshold": 0.0, "pair": "df-e3"}))
    return str(folder)


GAIN = torch.tensor([-2.0, -1.0, 1.0, 2.0])


def test_the_entropy_threshold_parts_the_rounds_where_eagle3_gains():
    assert 9 < tune("entropy", rounds(GAIN), SETTING, TIMES).threshold < 11


@pytest.mark.parametrize(("sign", "positive", "low", "high"), [(1, "eagle3", 9, 11), (-1, "dflash", -11, -9)])
def test_a_neural_threshold_is_in_the_routers_own_sign(tmp_path, sign, positive, low, high):
    found = tune(router(tmp_path / "r", sign, positive), rounds(GAIN), SETTING, TIMES)
    assert low < found.threshold < high


def test_a_tuned_router_reaches_the_upper_bound_where_its_scores_part_the_rounds(tmp_path):
    speeds = tune(router(tmp_path / "r", 1, "eagle3"), rounds(GAIN), SETTING, TIMES).speeds
    best = next(speed for name, speed in speeds.items() if "tuned" in name)
    assert best.tokens_per_s == speeds["best drafter per round (upper bound)"].tokens_per_s


def test_a_dearer_eagle3_raises_the_threshold(tmp_path):
    path = router(tmp_path / "r", 1, "eagle3")
    dear = RoundTimes(eagle3=0.14, dflash=0.1)
    assert (
        tune(path, rounds(GAIN), SETTING, dear).threshold > tune(path, rounds(GAIN), SETTING, TIMES).threshold
    )


def test_a_written_threshold_is_read_back_by_the_loader(tmp_path):
    path = router(tmp_path / "r", 1, "eagle3")
    write_threshold(path, 0.75)
    assert json.loads((tmp_path / "r" / "config.json").read_text())["threshold"] == 0.75


def test_writing_to_what_is_no_router_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--write"):
        write_threshold(str(tmp_path), 0.5)

"""Sampled rounds come back from disk as written, and folders that do not fit together are refused."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import save_file

from whiflash_sglang.router_training.records import (
    Records,
    RoundTimes,
    Setting,
    done_prompts,
    list_shards,
    load,
    read_shard,
    write_shard,
)

SETTING = Setting(
    target="org/target",
    pair="df-e3",
    positive="eagle3",
    negative="dflash",
    tree_budget=None,
    hidden_size=3,
    eagle_draft="org/eagle",
    dflash_draft="org/dflash",
    eagle_tree=(8, 10, 60),
    block_size=16,
    dtype="bfloat16",
    max_new_tokens=64,
    sample_every=4,
)


def records(prompts=("a", "b"), of=(0, 1, 1), categories=None):
    n = len(of)
    torch.manual_seed(n)
    return Records(
        hidden=torch.randn(n, 3).bfloat16(),
        entropy=torch.rand(n),
        top1=torch.rand(n),
        recent_pos=torch.full((n,), float("nan")),
        recent_neg=torch.ones(n),
        al_pos=1 + torch.rand(n),
        al_neg=1 + torch.rand(n),
        prompt=torch.tensor(of, dtype=torch.int64),
        position=torch.arange(n),
        prompts=list(prompts),
        categories=categories or ["chat"] * len(prompts),
    )


def test_a_shard_comes_back_as_written(tmp_path):
    written = records()
    found, setting = read_shard(write_shard(tmp_path, 0, written, SETTING))
    assert setting == SETTING
    assert (found.prompts, found.categories) == (written.prompts, written.categories)
    for name, tensor in written.tensors().items():
        torch.testing.assert_close(found.tensors()[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_a_folder_is_read_in_the_order_of_its_shards(tmp_path):
    write_shard(tmp_path, 1, records(["c"], [0]), SETTING)
    write_shard(tmp_path, 0, records(["a", "b"], [1, 0]), SETTING)
    found, _ = load(tmp_path)
    assert [found.prompts[i] for i in found.prompt] == ["b", "a", "c"]


def test_an_unfinished_shard_is_no_shard(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_shard(tmp_path, 0, records(), SETTING)
    assert list_shards(tmp_path) == []


def test_a_prompt_without_records_counts_as_done(tmp_path):
    write_shard(tmp_path, 0, records(["a", "b"], [1]), SETTING)
    assert done_prompts(tmp_path) == {"a", "b"}


def test_a_shard_may_hold_no_records_at_all(tmp_path):
    write_shard(tmp_path, 0, records(["a"], []), SETTING)
    assert len(load(tmp_path)[0]) == 0


def test_a_missing_folder_has_no_prompts_done(tmp_path):
    assert done_prompts(tmp_path / "none") == set()


def test_a_prompt_in_two_folders_is_one_prompt(tmp_path):
    write_shard(tmp_path / "one", 0, records(["a", "b"], [0, 1]), SETTING)
    write_shard(tmp_path / "two", 0, records(["b", "c"], [0, 1]), SETTING)
    found, _ = load(tmp_path / "one", tmp_path / "two")
    assert found.prompts == ["a", "b", "c"]
    assert found.prompt.tolist() == [0, 1, 1, 2]


def test_a_prompt_of_two_categories_is_refused():
    with pytest.raises(ValueError, match=r"'a' is both of 'chat' and of 'math'"):
        Records.concat([records(["a"], [0], ["chat"]), records(["a"], [0], ["math"])])


def test_nothing_to_join_is_refused():
    with pytest.raises(ValueError, match="cannot be joined"):
        Records.concat([])


def test_selecting_keeps_prompts_and_delta_in_step():
    some = records()
    chosen = some.select(torch.tensor([2, 0]))
    assert chosen.prompt.tolist() == [1, 0]
    torch.testing.assert_close(chosen.delta, (some.al_pos - some.al_neg)[[2, 0]])


def test_shards_of_different_settings_are_refused_with_the_fields_that_differ(tmp_path):
    write_shard(tmp_path, 0, records(), SETTING)
    other = dataclasses.replace(SETTING, block_size=8, eagle_tree=(8, 8, 60))
    write_shard(tmp_path, 1, records(), other)
    with pytest.raises(ValueError, match=r"shard-00001.*differ in eagle_tree: .*; block_size: 16 / 8"):
        load(tmp_path)


def test_a_corrupt_shard_is_refused_by_name(tmp_path):
    path = write_shard(tmp_path, 3, records(), SETTING)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"shard-00003\.safetensors cannot be read"):
        load(tmp_path)


def test_another_format_version_is_refused_by_name(tmp_path):
    path = tmp_path / "shard-00000.safetensors"
    save_file({"x": torch.ones(1)}, path, {"format": "whiflash-router-records", "version": "99"})
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is of .*version '99'; this reads"):
        load(tmp_path)


def test_a_file_of_something_else_is_refused_by_name(tmp_path):
    save_file({"x": torch.ones(1)}, tmp_path / "shard-00000.safetensors")
    with pytest.raises(ValueError, match="format None"):
        load(tmp_path)


def test_a_folder_without_shards_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path.name} .--data. holds no shard"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hidden", torch.zeros(3, 3), "hidden is torch.float32"),
        ("hidden", torch.zeros(3, 4).bfloat16(), r"expected torch.bfloat16 \[3, 3\]"),
        ("entropy", torch.tensor([1.0, float("nan"), 1.0]), "entropy holds values that are not finite"),
        ("al_neg", torch.zeros(3), "acceptance length is below 1"),
        ("prompt", torch.tensor([0, 1, 2]), "outside the 2 prompts"),
    ],
)
def test_records_that_are_not_as_described_are_not_written(tmp_path, name, value, message):
    with pytest.raises(ValueError, match=message):
        write_shard(tmp_path, 0, dataclasses.replace(records(), **{name: value}), SETTING)


def test_a_setting_survives_json():
    assert Setting.from_json(json.loads(json.dumps(SETTING.to_json()))) == SETTING


def test_a_setting_with_other_fields_is_refused_by_their_names():
    values = SETTING.to_json() | {"colour": 1}
    del values["dtype"]
    with pytest.raises(ValueError, match=r"lacks \['dtype'\] and has the unknown \['colour'\]"):
        Setting.from_json(values)


def test_drafters_that_do_not_belong_to_the_pair_are_refused():
    with pytest.raises(ValueError, match=r"'ddt-e3'.*'dflash'"):
        dataclasses.replace(SETTING, pair="ddt-e3")


@pytest.mark.parametrize("plain", [None, 0.02])
def test_round_times_come_back_as_written(tmp_path, plain):
    times = RoundTimes(0.08, 0.06, plain)
    times.write(tmp_path)
    assert RoundTimes.read(tmp_path) == times


def test_round_times_are_parsed_from_the_flag():
    assert RoundTimes.parse("eagle3=0.08, dflash=0.06,plain=0.02") == RoundTimes(0.08, 0.06, 0.02)


@pytest.mark.parametrize("text", ["eagle3=0.08", "eagle3=0.08,dflash=x", "eagle3=1,dflash=0", "a=1,dflash=1"])
def test_a_bad_flag_of_round_times_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=f"--round-times '{text}'"):
        RoundTimes.parse(text)


def test_missing_round_times_name_the_file_and_the_flag(tmp_path):
    with pytest.raises(ValueError, match=r"round_times\.json is missing.*--round-times eagle3="):
        RoundTimes.read(tmp_path)


def test_round_times_that_cannot_be_read_name_the_file(tmp_path):
    (tmp_path / "round_times.json").write_text('{"eagle3": 1}')
    with pytest.raises(ValueError, match=r"round_times\.json cannot be read"):
        RoundTimes.read(tmp_path)


def test_folders_whose_round_times_differ_are_refused(tmp_path):
    folders = [tmp_path / name for name in ("one", "two", "none")]
    RoundTimes(0.08, 0.06).write(folders[0])
    assert RoundTimes.read_one_of(folders) == RoundTimes(0.08, 0.06)
    RoundTimes(0.09, 0.06).write(folders[1])
    with pytest.raises(ValueError, match="differ"):
        RoundTimes.read_one_of(folders)

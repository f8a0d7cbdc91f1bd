"""A router learns what the hidden state tells, and its folder loads where routers are loaded."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from whiflash_sglang.router_training import export as exporting
from whiflash_sglang.router_training.export import export, push
from whiflash_sglang.router_training.model import RouterMLP, moments
from whiflash_sglang.router_training.options import TrainOptions
from whiflash_sglang.router_training.records import Records, RoundTimes, Setting, write_shard
from whiflash_sglang.router_training.split import split_by_prompt
from whiflash_sglang.router_training.tables import print_tables
from whiflash_sglang.router_training.train import train
from whiflash_sglang.routing import RoundSignals
from whiflash_sglang.routing.checkpoint import load_router, threshold_of
from whiflash_sglang.routing.neural import NeuralRouter

HIDDEN = 8
CATEGORIES = ("chat", "math")
TIMES = RoundTimes(0.08, 0.06)
QUICK = TrainOptions(width=16, max_epochs=25, lr=1e-2, batch_size=128)
SETTING = Setting(
    target="org/target",
    pair="df-e3",
    positive="eagle3",
    negative="dflash",
    tree_budget=None,
    hidden_size=HIDDEN,
    eagle_draft="org/eagle",
    dflash_draft="org/dflash",
    eagle_tree=(8, 10, 60),
    block_size=16,
    dtype="bfloat16",
    max_new_tokens=64,
    sample_every=4,
)


def rounds(prompts=20, per_prompt=50, noise=0.2, categories=CATEGORIES):
    """dAL is linear in the hidden state, whose columns differ widely in mean and scale."""
    generator = torch.Generator().manual_seed(0)
    n = prompts * per_prompt
    inner = torch.randn(n, HIDDEN, generator=generator)
    weights = torch.linspace(-1, 1, HIDDEN)
    delta = inner @ weights + noise * torch.randn(n, generator=generator)
    return Records(
        hidden=(inner * torch.logspace(-1, 1, HIDDEN) + torch.linspace(-5, 5, HIDDEN)).bfloat16(),
        entropy=torch.rand(n, generator=generator),
        top1=torch.rand(n, generator=generator),
        recent_pos=torch.full((n,), float("nan")),
        recent_neg=torch.full((n,), float("nan")),
        al_pos=8 + delta / 2,
        al_neg=8 - delta / 2,
        prompt=torch.arange(prompts).repeat_interleave(per_prompt),
        position=torch.arange(n),
        prompts=[f"prompt-{i}" for i in range(prompts)],
        categories=[categories[i % len(categories)] for i in range(prompts)],
    )


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Matrices this small only wait for each other on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def of_delta():
    return train(rounds(), SETTING, TIMES, QUICK)


@pytest.fixture(scope="module")
def of_both():
    options = dataclasses.replace(QUICK, predict="both", seeds=2, weights="bfloat16", loss="huber")
    return train(rounds(), SETTING, TIMES, options)


def test_a_linear_dal_is_learned(of_delta):
    assert of_delta.best.r_squared > 0.9
    assert of_delta.best.spearman > 0.9


def test_both_lengths_are_learned_as_well(of_both):
    assert of_both.best.r_squared > 0.9


def test_routing_by_a_learned_dal_beats_each_drafter_alone(of_delta):
    rules = of_delta.table["all"]
    alone = max(rules["eagle3 alone"].tokens_per_s, rules["dflash alone"].tokens_per_s)
    assert rules["neural router"].tokens_per_s > alone


def test_figures_are_given_over_all_and_per_category(of_delta):
    assert list(of_delta.table) == ["all", "chat", "math"]


def test_the_rate_router_is_simulated_only_where_both_lengths_are_predicted(of_delta, of_both):
    assert "rate router" not in of_delta.table["all"]
    assert "rate router" in of_both.table["all"]


def test_the_kept_network_is_that_of_the_least_validation_loss(of_both):
    assert of_both.best.loss == min(loss for run in of_both.runs for _, loss in run.curve)


def test_training_ends_after_the_given_epochs_without_gain():
    options = dataclasses.replace(QUICK, patience=2, max_epochs=100, lr=0.05)
    run = train(rounds(per_prompt=10), SETTING, TIMES, options).best
    assert len(run.curve) == run.best_epoch + 3


def test_one_seed_trains_the_same_network_twice(of_delta):
    torch.manual_seed(99)
    again = train(rounds(), SETTING, TIMES, QUICK)
    assert again.best.curve == of_delta.best.curve


def test_mean_and_deviation_need_two_seeds(of_delta, of_both):
    assert of_delta.spread("loss") is None
    mean, deviation = of_both.spread("r_squared")
    assert 0.9 < mean < 1
    assert deviation >= 0


def test_noise_explains_nothing():
    some = rounds()
    some.hidden = torch.randn(len(some), HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    options = dataclasses.replace(QUICK, max_epochs=3)
    assert train(some, SETTING, TIMES, options).best.r_squared < 0.1


def test_folding_the_standardisation_leaves_the_scores_as_they_were():
    hidden = rounds().hidden
    torch.manual_seed(0)
    network = RouterMLP(HIDDEN, 16, 2)
    mean, std = moments(hidden)
    expected = network((hidden.float() - mean.float()) / std.float())
    torch.testing.assert_close(network.folded(mean, std)(hidden), expected, rtol=1e-4, atol=1e-4)


def test_a_column_that_does_not_vary_is_not_scaled():
    _, std = moments(torch.tensor([[1.0, 3.0], [2.0, 3.0]]))
    assert std.tolist() == [0.5, 1.0]


def test_the_difference_of_two_outputs_is_one_output():
    network, hidden = RouterMLP(HIDDEN, 4, 2), torch.randn(5, HIDDEN)
    outputs = network.predict(hidden)
    torch.testing.assert_close(network.difference().predict(hidden)[:, 0], outputs[:, 0] - outputs[:, 1])


@pytest.mark.parametrize("seed", range(5))
def test_training_and_validation_share_no_prompt(seed):
    training, validation = split_by_prompt(rounds(per_prompt=3), 0.3, seed)
    assert not set(training.prompt.tolist()) & set(validation.prompt.tolist())
    assert len(training) + len(validation) == 60


def test_each_category_gives_its_share_to_validation():
    _, validation = split_by_prompt(rounds(per_prompt=3), 0.3, 0)
    held_out = [validation.categories[i] for i in validation.prompt.unique()]
    assert (held_out.count("chat"), held_out.count("math")) == (3, 3)


def test_one_prompt_per_category_still_makes_two_parts():
    training, validation = split_by_prompt(rounds(prompts=2), 0.15, 0)
    assert (len(training), len(validation)) == (50, 50)


def test_a_single_prompt_is_refused():
    with pytest.raises(ValueError, match=r"records of 1 prompt\(s\)"):
        train(rounds(prompts=1), SETTING, TIMES, QUICK)


def test_a_dal_that_does_not_vary_is_refused():
    some = rounds()
    some.al_pos, some.al_neg = torch.full_like(some.al_pos, 3), torch.full_like(some.al_neg, 1)
    with pytest.raises(ValueError, match="dAL is 2 in all"):
        train(some, SETTING, TIMES, QUICK)


@pytest.mark.parametrize(
    ("option", "flag"),
    [
        ({"width": 0}, "--width is 0"),
        ({"lr": float("nan")}, "--lr is nan"),
        ({"validation_fraction": 1.0}, "--validation-fraction is 1.0"),
        ({"loss": "l1"}, "--loss is 'l1'; choose one of mse, huber"),
        ({"weight_decay": -1.0}, "--weight-decay is -1.0"),
    ],
)
def test_a_bad_option_is_refused_by_its_flag(option, flag):
    with pytest.raises(ValueError, match=flag):
        TrainOptions(**option)


def test_a_category_named_like_the_row_over_all_is_refused():
    with pytest.raises(ValueError, match="category named 'all'"):
        train(rounds(categories=("all", "math")), SETTING, TIMES, QUICK)


def test_a_loss_that_is_not_finite_is_refused_by_the_learning_rate():
    with pytest.raises(ValueError, match=r"--lr 1e\+30 may be too high"):
        train(rounds(), SETTING, TIMES, dataclasses.replace(QUICK, lr=1e30))


def test_category_names_are_printed_as_they_are(capsys):
    options = dataclasses.replace(QUICK, max_epochs=1)
    print_tables(train(rounds(categories=("a [bold]", "b|c")), SETTING, TIMES, options))
    assert "a [bold]" in capsys.readouterr().out


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="--device 'nonsense' is not available"):
        train(rounds(), SETTING, TIMES, dataclasses.replace(QUICK, device="nonsense"))


@pytest.mark.parametrize("where", ["", "model.safetensors"])
@pytest.mark.parametrize("kind", ["of_delta", "of_both"])
def test_an_exported_router_loads_and_scores_as_it_was_simulated(tmp_path, request, kind, where):
    result = request.getfixturevalue(kind)
    path = str(export(result, tmp_path / "router") / where)
    loaded = load_router(path, pair="df-e3", tree_budget=None, hidden_size=HIDDEN)
    router = NeuralRouter(loaded, threshold_of(loaded, None), "cpu")
    hidden = rounds().hidden[:9]
    expected = result.router.predict(hidden)[:, 0] - result.threshold
    torch.testing.assert_close(router.score(RoundSignals(hidden, None)), expected)


def test_the_exported_config_holds_the_run_it_was_trained_for(tmp_path, of_delta):
    config = json.loads((export(of_delta, tmp_path) / "config.json").read_text())
    expected = {"pair": "df-e3", "tree_budget": None, "target": "org/target", "positive": "eagle3"}
    assert expected.items() <= config.items()
    assert (config["eagle_tree"], config["block_size"], config["width"]) == ([8, 10, 60], 16, 16)


def test_a_new_export_leaves_no_heads_of_an_earlier_one(tmp_path, of_delta, of_both):
    assert (export(of_both, tmp_path) / exporting.HEADS).is_file()
    assert not (export(of_delta, tmp_path) / exporting.HEADS).exists()


def test_a_folder_of_something_else_is_not_written_to(tmp_path, of_delta):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"--output .* is not empty"):
        export(of_delta, tmp_path)


def test_the_card_names_base_model_and_figures(tmp_path, of_both):
    card = (export(of_both, tmp_path) / "README.md").read_text()
    assert card.startswith("---\nbase_model: org/target\nlicense: apache-2.0\n")
    assert f"{of_both.table['math']['neural router'].tokens_per_s:.2f}" in card
    assert f"{of_both.best.spearman:.4f}" in card


def test_a_card_of_a_local_target_names_no_base_model(tmp_path, of_delta):
    local = dataclasses.replace(of_delta, setting=dataclasses.replace(SETTING, target="/models/mine"))
    assert "base_model" not in (export(local, tmp_path) / "README.md").read_text()


def test_a_failed_upload_says_where_the_router_is(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(exporting.HfApi, "create_repo", refuse)
    with pytest.raises(ValueError, match=f"--push-to-hub 'me/r' failed: no network.*{tmp_path.name}"):
        push(tmp_path, "me/r", private=True)


def test_an_upload_makes_the_repository_and_sends_the_folder(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        exporting.HfApi, "create_repo", lambda _, repo_id, **kw: seen.update(repo=repo_id, **kw)
    )
    monkeypatch.setattr(exporting.HfApi, "upload_folder", lambda _, **kw: seen.update(kw))
    push(tmp_path, "me/r", private=True)
    assert (seen["repo"], seen["private"], seen["folder_path"]) == ("me/r", True, tmp_path)


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[2] / "scripts" / "train_router.py"
    spec = importlib.util.spec_from_file_location("train_router", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_trains_from_a_folder_and_writes_router_and_report(tmp_path, script, capsys):
    write_shard(tmp_path / "data", 0, rounds(), SETTING)
    TIMES.write(tmp_path / "data")
    folders = ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    report = tmp_path / "out" / "report.json"
    flags = ["--report-json", str(report), "--width", "8", "--max-epochs", "2"]
    assert script.main([*folders, *flags]) == 0
    assert "neural router" in capsys.readouterr().out
    assert json.loads(report.read_text())["validation"]["all"]["neural router"]["rounds"] > 0
    load_router(str(tmp_path / "out"), pair="df-e3", tree_budget=None, hidden_size=HIDDEN)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "round_times.json is missing"),
        (["--round-times", "eagle3=1,dflash=1"], "holds no shard"),
        (["--private"], "--private is given without --push-to-hub"),
        (["--push-to-hub", "a/b/c"], "--push-to-hub 'a/b/c' is no repository's name"),
        (["--width", "0"], "--width is 0"),
        (["--threads", "0"], "--threads is 0"),
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(tmp_path, script, capsys, flags, message):
    (tmp_path / "data").mkdir()
    assert script.main(["--data", str(tmp_path / "data"), "--output", str(tmp_path / "out"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1

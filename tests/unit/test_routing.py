"""Routers decide as described, and router checkpoints load by shape or are refused."""

import json

import pytest
import torch
from safetensors.torch import save_file

from whiflash_sglang.config import WhiflashConfig
from whiflash_sglang.routing import DFLASH, EAGLE3, RoundSignals, build_router
from whiflash_sglang.routing.checkpoint import load_router

HIDDEN = 6


def router(**options):
    config = WhiflashConfig.from_mapping({"dflash_draft": "d", "eagle_draft": "e", **options})
    return build_router(config, target="org/target", hidden_size=HIDDEN, device="cpu")


def write_router(folder, config=None, **shapes):
    torch.manual_seed(0)
    default = {"l1.w": (4, HIDDEN), "l1.b": (4,), "l2.w": (1, 4), "l2.b": (1,)}
    tensors = {name: torch.randn(shape) for name, shape in (default | shapes).items() if shape}
    save_file(tensors, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return tensors


def test_fixed_routers_take_their_drafter_only():
    fixed = router(router="dflash")
    assert fixed.drafters == (DFLASH,)
    assert fixed.pick(torch.tensor([9.0])) == DFLASH


def test_alternate_switches_every_round():
    alternate = router(router="alternate")
    picks = [alternate.pick(torch.tensor([0.0])) for _ in range(4)]
    assert picks == [EAGLE3, DFLASH, EAGLE3, DFLASH]


def test_random_is_equal_on_every_rank_with_one_seed():
    one, two = (router(router="random", router_seed=3) for _ in range(2))
    picks = [one.pick(torch.tensor([0.0])) for _ in range(20)]
    assert picks == [two.pick(torch.tensor([0.0])) for _ in range(20)]
    assert set(picks) == {EAGLE3, DFLASH}


def test_an_uncertain_batch_goes_to_eagle3_by_the_sum_over_requests():
    entropy = router(router="entropy", entropy_threshold=1.0)
    scores = entropy.score(RoundSignals(None, torch.tensor([0.5, 2.0])))
    assert scores.tolist() == [-0.5, 1.0]
    assert entropy.pick(scores) == EAGLE3
    assert entropy.pick(scores[:1]) == DFLASH


@pytest.mark.parametrize("where", ["file", "folder"])
def test_a_neural_router_scores_as_its_mlp(tmp_path, where):
    w = write_router(tmp_path)
    path = tmp_path / "model.safetensors" if where == "file" else tmp_path
    neural = router(router="neural", neural_router_path=str(path), neural_router_threshold=0.25)
    hidden = torch.randn(3, HIDDEN)
    inner = torch.nn.functional.gelu(hidden @ w["l1.w"].T + w["l1.b"])
    expected = (inner @ w["l2.w"].T + w["l2.b"]).squeeze(-1) - 0.25
    scores = neural.score(RoundSignals(hidden, None))
    torch.testing.assert_close(scores, expected)
    assert neural.pick(torch.tensor([1.0, -0.5])) == EAGLE3
    assert neural.pick(torch.tensor([0.5, -0.5])) == DFLASH


def test_where_dflash_is_the_positive_drafter_the_score_turns_round(tmp_path):
    write_router(tmp_path, {"positive": "dflash", "pair": "df-e3", "hidden_state": "post_norm"})
    neural = router(router="neural", neural_router_path=str(tmp_path), neural_router_threshold=0.0)
    hidden = torch.randn(2, HIDDEN)
    torch.testing.assert_close(neural.score(RoundSignals(hidden, None)), -neural.delta(hidden))


def test_the_threshold_is_the_flags_else_the_routers_own_else_zero(tmp_path):
    write_router(tmp_path, {"threshold": 0.75})
    path = str(tmp_path)
    assert router(router="neural", neural_router_path=path).threshold == 0.75
    assert router(router="neural", neural_router_path=path, neural_router_threshold=2.0).threshold == 2.0
    (tmp_path / "config.json").unlink()
    assert router(router="neural", neural_router_path=path).threshold == 0.0


@pytest.mark.parametrize(
    ("config", "shapes", "said"),
    [
        ({"pair": "ddt-e3"}, {}, "'ddt-e3'.*'df-e3'"),
        ({"positive": "medusa"}, {}, "'medusa'"),
        ({"hidden_state": "pre_norm"}, {}, "pre_norm"),
        (None, {"l2.w": (2, 4)}, r"two-layer MLP.*\(2, 4\)"),
        (None, {"l2.b": None}, "two-layer MLP"),
        (None, {"extra": (3,)}, "two-layer MLP"),
        (None, {"l1.w": (4, HIDDEN + 1)}, f"{HIDDEN + 1}.*{HIDDEN}"),
    ],
)
def test_a_router_that_does_not_fit_is_refused(tmp_path, config, shapes, said):
    write_router(tmp_path, config, **shapes)
    with pytest.raises(ValueError, match=said):
        load_router(str(tmp_path), pair="df-e3", tree_budget=None, hidden_size=HIDDEN)


def test_a_router_trained_for_another_budget_is_refused_with_both(tmp_path):
    write_router(tmp_path, {"pair": "ddt-e3", "tree_budget": 64})
    with pytest.raises(ValueError, match=r"64.*32"):
        load_router(str(tmp_path), pair="ddt-e3", tree_budget=32, hidden_size=HIDDEN)


def test_a_router_trained_for_another_budget_is_taken_where_that_is_allowed(tmp_path):
    write_router(tmp_path, {"pair": "ddt-e3", "tree_budget": 64})
    load_router(str(tmp_path), pair="ddt-e3", tree_budget=32, hidden_size=HIDDEN, any_budget=True)


def test_a_file_that_holds_no_weights_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_text("no")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_router(str(tmp_path), pair="df-e3", tree_budget=None, hidden_size=HIDDEN)


def test_a_router_is_fetched_from_the_hub_by_repo_id(tmp_path, monkeypatch):
    import huggingface_hub

    write_router(tmp_path, {"pair": "df-e3"})
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repo, **_: str(tmp_path))
    loaded = load_router("org/router", pair="df-e3", tree_budget=None, hidden_size=HIDDEN)
    assert loaded.hidden_size == HIDDEN


def test_a_router_that_is_nowhere_names_the_flag(monkeypatch):
    import huggingface_hub

    def fail(repo, **_):
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ValueError, match=r"--whiflash-neural-router-path 'org/router'.*offline"):
        load_router("org/router", pair="df-e3", tree_budget=None, hidden_size=HIDDEN)

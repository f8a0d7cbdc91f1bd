"""Router checkpoints: found by repo id, folder or file; loaded by tensor shape; checked against the run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whiflash_sglang.routing.base import DFLASH, EAGLE3

_DRAFTER_NAMES = {
    "eagle3": EAGLE3,
    "eagle-3": EAGLE3,
    "e3": EAGLE3,
    "dflash": DFLASH,
    "df": DFLASH,
    "ddtree": DFLASH,
    "ddt": DFLASH,
}
# The key spellings read from a router's config.json. The published routers' own
# keys are not public; ours are the first of each row.
_KEYS = {
    "pair": ("pair", "drafters"),
    "tree_budget": ("tree_budget", "ddtree_tree_budget"),
    "target": ("target", "target_model", "target_model_name_or_path"),
    "positive": ("positive", "positive_drafter", "pos"),
    "hidden_state": ("hidden_state",),
    "threshold": ("threshold",),
}


@dataclass(frozen=True)
class RouterCheckpoint:
    """The MLP's tensors (w1 [W, H], b1 [W], w2 [1, W], b2 [1]) and what its config.json says."""

    path: str
    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor
    positive: str
    config: dict[str, Any]

    @property
    def hidden_size(self) -> int:
        """Width of the hidden state the router reads."""
        return self.w1.shape[1]


def load_router(
    path: str, *, pair: str, tree_budget: int | str | None, hidden_size: int, any_budget: bool = False
) -> RouterCheckpoint:
    """Load a router and check that it was trained for this run.

    Args:
        path: Hub repo id, folder, or ``.safetensors`` file.
        pair: the run's pair of drafters, e.g. ``"df-e3"``.
        tree_budget: the run's DDTree budget; None without DDTree.
        hidden_size: the target's hidden size.
        any_budget: take a router of another budget.

    Raises:
        ValueError: no weights there, other shapes than a two-layer MLP, or a
            config.json that names another pair, budget or hidden-state kind.
    """
    weights, config = _locate(path)
    checkpoint = _by_shape(path, weights, config)
    if checkpoint.hidden_size != hidden_size:
        raise ValueError(
            f"--whiflash-neural-router-path {path!r} reads hidden states of size "
            f"{checkpoint.hidden_size}; the target's are {hidden_size}"
        )
    _check_config(path, config, pair)
    if not any_budget:
        _check_budget(path, config, pair, tree_budget)
    return checkpoint


def _locate(path: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    from safetensors.torch import load_file

    local = Path(path)
    if local.is_file():
        weights_file, config_file = local, local.parent / "config.json"
    elif local.is_dir():
        weights_file, config_file = _only_weights(local), local / "config.json"
    else:
        folder = _download(path)
        weights_file, config_file = _only_weights(folder), folder / "config.json"
    try:
        weights = load_file(weights_file)
    except Exception as error:
        raise ValueError(
            f"--whiflash-neural-router-path {path!r}: {weights_file} is not a safetensors file ({error})"
        ) from error
    config = json.loads(config_file.read_text()) if config_file.is_file() else {}
    return weights, config


def _download(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo_id, allow_patterns=["config.json", "*.safetensors"]))
    except Exception as error:
        raise ValueError(
            f"--whiflash-neural-router-path {repo_id!r} is neither a file nor a folder here, and "
            f"could not be fetched from the Hub: {error}"
        ) from error


def _only_weights(folder: Path) -> Path:
    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        raise ValueError(
            f"--whiflash-neural-router-path: {folder} holds {len(files)} .safetensors files "
            f"({[f.name for f in files]}); exactly one is expected"
        )
    return files[0]


def _by_shape(path: str, weights: dict[str, torch.Tensor], config: dict[str, Any]) -> RouterCheckpoint:
    """Tell w1, b1, w2 and b2 apart by shape, whatever their names."""
    matrices = [w for w in weights.values() if w.ndim == 2]
    vectors = [w for w in weights.values() if w.ndim == 1]
    heads = [m for m in matrices if m.shape[0] == 1]
    inner = [m for m in matrices if m.shape[0] != 1]
    if len(weights) == 4 and len(heads) == len(inner) == 1:
        width = inner[0].shape[0]
        b1 = [v for v in vectors if v.shape == (width,)]
        b2 = [v for v in vectors if v.shape == (1,)]
        if len(b1) == len(b2) == 1 and heads[0].shape == (1, width):
            positive = _positive(path, config)
            return RouterCheckpoint(path, inner[0], b1[0], heads[0], b2[0], positive, config)
    shapes = {name: tuple(w.shape) for name, w in weights.items()}
    raise ValueError(
        f"--whiflash-neural-router-path {path!r} is not a two-layer MLP with a scalar output "
        f"([W, H], [W], [1, W], [1]); found {shapes}"
    )


def _get(config: dict[str, Any], key: str) -> Any:
    return next((config[name] for name in _KEYS[key] if name in config), None)


def _positive(path: str, config: dict[str, Any]) -> str:
    """The drafter a positive dAL speaks for; EAGLE-3 where the config does not say."""
    name = _get(config, "positive")
    if name is None:
        return EAGLE3
    if str(name).lower() not in _DRAFTER_NAMES:
        raise ValueError(
            f"{path}/config.json names the positive drafter {name!r}; known are {sorted(_DRAFTER_NAMES)}"
        )
    return _DRAFTER_NAMES[str(name).lower()]


def _check_config(path: str, config: dict[str, Any], pair: str) -> None:
    trained_pair = _get(config, "pair")
    if trained_pair is not None and trained_pair != pair:
        raise ValueError(
            f"the router {path!r} was trained for the pair {trained_pair!r}; --whiflash-drafters is {pair!r}"
        )
    kind = _get(config, "hidden_state")
    if kind not in (None, "post_norm"):
        raise ValueError(
            f"the router {path!r} reads the hidden state {kind!r}; only 'post_norm' is available"
        )


def _check_budget(path: str, config: dict[str, Any], pair: str, tree_budget: int | str | None) -> None:
    trained_budget = _get(config, "tree_budget")
    if pair.startswith("ddt") and trained_budget is not None and trained_budget != tree_budget:
        raise ValueError(
            f"the router {path!r} was trained for a tree budget of {trained_budget}; "
            f"--ddtree-tree-budget is {tree_budget}. Tune its threshold for this budget "
            "(scripts/tune_threshold.py) and add --whiflash-allow-budget-mismatch to use it all the same"
        )


def threshold_of(checkpoint: RouterCheckpoint, given: float | None) -> float:
    """The threshold to route by: the flag's, else the router's own, else 0."""
    if given is not None:
        return given
    own = _get(checkpoint.config, "threshold")
    return 0.0 if own is None else float(own)


def target_of(checkpoint: RouterCheckpoint) -> str | None:
    """The target model the router's config.json names, if it names one."""
    return _get(checkpoint.config, "target")

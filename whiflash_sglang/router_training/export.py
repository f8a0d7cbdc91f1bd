"""A router's folder: weights and config that ``routing.checkpoint`` loads, a model card, and the way to the Hub."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from huggingface_hub.utils import HFValidationError, validate_repo_id
from safetensors.torch import save_file

from whiflash_sglang.router_training.card import router_card
from whiflash_sglang.router_training.model import RouterMLP
from whiflash_sglang.router_training.train import TrainResult

FORMAT = "whiflash-router"
VERSION = 1
WEIGHTS = "model.safetensors"
HEADS = "rate/both_heads.safetensors"  # in a folder of its own: the loader wants one weights file beside config.json


def export(result: TrainResult, folder: Path) -> Path:
    """Write config.json, model.safetensors, README.md and, where both heads exist, rate/both_heads.safetensors.

    An earlier router in the folder is replaced.

    Raises:
        ValueError: the folder holds something else.
    """
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = getattr(torch, result.options.weights)
    (folder / "config.json").write_text(json.dumps(router_config(result), indent=2) + "\n")
    _save(result.router, folder / WEIGHTS, dtype)
    if result.heads is None:
        (folder / HEADS).unlink(missing_ok=True)
    else:
        (folder / HEADS).parent.mkdir(exist_ok=True)
        _save(result.heads, folder / HEADS, dtype)
    (folder / "README.md").write_text(router_card(result))
    return folder


def router_config(result: TrainResult) -> dict[str, Any]:
    """config.json: what the loader checks, then what the router was made from."""
    setting = result.setting.to_json()
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "pair": setting.pop("pair"),
        "tree_budget": setting.pop("tree_budget"),
        "target": setting.pop("target"),
        "positive": setting.pop("positive"),
        "hidden_state": setting.pop("hidden_state"),
        "threshold": result.threshold,
        "width": result.options.width,
        "activation": "gelu",
        "predict": result.options.predict,
        "round_times": dataclasses.asdict(result.times),
        **setting,
    }


def refuse_foreign(folder: Path) -> None:
    """Refuse to write among files that are no router's.

    Raises:
        ValueError: ``--output`` is a file, or a folder with something else in it.
    """
    if folder.is_file():
        raise ValueError(f"--output {folder} is a file; a folder is needed")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        config = json.loads((folder / "config.json").read_text())
        is_router = config.get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        is_router = False
    extra = sorted(f.name for f in folder.glob("*.safetensors") if f.name != WEIGHTS)
    if not is_router or extra:
        raise ValueError(
            f"--output {folder} is not empty and holds no router of this kind alone{f': {extra}' if extra else ''}; "
            "name a new folder"
        )


def check_repo_id(repo_id: str) -> None:
    """Refuse what cannot be a repository's name, before anything is trained.

    Raises:
        ValueError: names the flag and the value.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"--push-to-hub {repo_id!r} is no repository's name: {error}") from error


def push(folder: Path, repo_id: str, private: bool = False) -> str:
    """Upload the folder to the Hub, making the repository if needed; its address.

    Raises:
        ValueError: names the flag and what the Hub said.
    """
    try:
        api = HfApi()
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload WHIFLASH router")
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise ValueError(
            f"--push-to-hub {repo_id!r} failed: {reason.splitlines()[0]}; the router is in {folder}"
        ) from error
    return str(address)


def _save(network: RouterMLP, path: Path, dtype: torch.dtype) -> None:
    save_file({k: w.detach().cpu().to(dtype).contiguous() for k, w in network.state_dict().items()}, path)

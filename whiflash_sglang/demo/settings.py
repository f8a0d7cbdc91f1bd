"""The demo's flags: its drafters, routers and trees, one YAML file per pair beside the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "smollm2-135m"
_PATHS = ("speculative-draft-model-path", "whiflash-eagle-draft", "whiflash-neural-router-path")


def demo_settings(drafters: str | None = None) -> dict[str, Any]:
    """Flags without their dashes, e.g. ``{"whiflash-router": "neural", ...}``; paths are absolute.

    Args:
        drafters: the pair, ``df-e3`` (also where None) or ``ddt-e3``.
    """
    settings = yaml.safe_load((FOLDER / f"{drafters or 'df-e3'}.yaml").read_text())
    return {key: str(FOLDER / value) if key in _PATHS else value for key, value in settings.items()}

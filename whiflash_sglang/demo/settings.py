"""The demo's flags: its drafters, router and tree, as one YAML file beside the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "smollm2-135m"
_PATHS = ("speculative-draft-model-path", "whiflash-eagle-draft", "whiflash-neural-router-path")


def demo_settings() -> dict[str, Any]:
    """Flags without their dashes, e.g. ``{"whiflash-router": "neural", ...}``; paths are absolute."""
    settings = yaml.safe_load((FOLDER / "df-e3.yaml").read_text())
    return {key: str(FOLDER / value) if key in _PATHS else value for key, value in settings.items()}

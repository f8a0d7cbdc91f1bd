"""WHIFLASH's command-line flags, on any argparse parser."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from whiflash_sglang.config import WhiflashConfig


def _options() -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(WhiflashConfig) if "flag" in f.metadata]


def _dest(option: dataclasses.Field) -> str:
    return option.metadata["flag"].removeprefix("--").replace("-", "_")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag per config option; absent ones stay None, so that defaults live in the config."""
    group = parser.add_argument_group("WHIFLASH speculative decoding")
    for option in _options():
        default = f" [default: {option.default}]" if option.default is not None else ""
        group.add_argument(
            option.metadata["flag"],
            default=None,
            help=option.metadata["help"] + default,
            **option.metadata["argparse"],
        )


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The config options that were given on the command line, by config field name."""
    values = {option.name: getattr(args, _dest(option), None) for option in _options()}
    return {name: value for name, value in values.items() if value is not None}


def flags_given(options: dict[str, Any]) -> list[str]:
    """The flags behind ``options``, for messages."""
    return [option.metadata["flag"] for option in _options() if option.name in options]

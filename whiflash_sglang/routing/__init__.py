"""Routers: target-side signals in, a drafter's name out. No SGLang import in this package."""

from whiflash_sglang.routing.base import DFLASH, EAGLE3, RoundSignals, Router
from whiflash_sglang.routing.build import build_router

__all__ = ["DFLASH", "EAGLE3", "RoundSignals", "Router", "build_router"]

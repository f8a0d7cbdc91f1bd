"""The router a config asks for."""

from __future__ import annotations

import logging

from whiflash_sglang.config import WhiflashConfig
from whiflash_sglang.routing.base import DFLASH, EAGLE3, Router
from whiflash_sglang.routing.checkpoint import load_router, target_of, threshold_of
from whiflash_sglang.routing.entropy import EntropyRouter
from whiflash_sglang.routing.fixed import AlternateRouter, FixedRouter, RandomRouter
from whiflash_sglang.routing.neural import NeuralRouter

logger = logging.getLogger(__name__)


def build_router(config: WhiflashConfig, *, target: str, hidden_size: int, device: str) -> Router:
    """Build the router, loading and checking its weights where it has any.

    Args:
        target: the target's model path, to compare with the one the router names.
        hidden_size: of the target.
        device: where scores are computed.

    Raises:
        ValueError: the router does not fit the run; see ``routing.checkpoint.load_router``.
    """
    if config.router == "neural":
        return _neural(config, target, hidden_size, device)
    if config.router == "entropy":
        assert config.entropy_threshold is not None  # WhiflashConfig.validate
        return EntropyRouter(config.entropy_threshold)
    if config.router == "alternate":
        return AlternateRouter()
    if config.router == "random":
        return RandomRouter(config.router_seed)
    return FixedRouter(EAGLE3 if config.router == EAGLE3 else DFLASH)


def _neural(config: WhiflashConfig, target: str, hidden_size: int, device: str) -> NeuralRouter:
    assert config.neural_router_path is not None  # WhiflashConfig.validate
    checkpoint = load_router(
        config.neural_router_path,
        pair=config.drafters,
        tree_budget=config.ddtree_tree_budget,
        any_budget=config.takes_any_budget,
        hidden_size=hidden_size,
    )
    trained_for = target_of(checkpoint)
    if trained_for is not None and _last_part(trained_for) != _last_part(target):
        logger.warning(
            "The router %s was trained for the target %s; this target is %s.",
            config.neural_router_path,
            trained_for,
            target,
        )
    threshold = threshold_of(checkpoint, config.neural_router_threshold)
    return NeuralRouter(checkpoint, threshold, device)


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1].lower()

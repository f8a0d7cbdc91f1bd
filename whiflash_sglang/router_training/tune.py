"""The best threshold of any router on this machine: its scores on collected rounds, and the round times measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from whiflash_sglang.router_training.records import Records, Setting
from whiflash_sglang.router_training.round_times import RoundTimes
from whiflash_sglang.router_training.simulate import Speed, best_threshold, compare
from whiflash_sglang.routing.checkpoint import load_router, threshold_of
from whiflash_sglang.routing.neural import NeuralRouter

ENTROPY = "entropy"


@dataclass(frozen=True)
class Tuned:
    """A threshold, and what it and its rivals would have yielded on the same rounds (simulated)."""

    router: str
    threshold: float
    speeds: dict[str, Speed]


def tune(router: str, records: Records, setting: Setting, times: RoundTimes) -> Tuned:
    """The threshold that maximises simulated tokens per second.

    Args:
        router: ``"entropy"``, or a neural router's Hub repo id, folder or file.

    Raises:
        ValueError: no records, or a router that does not fit their setting.
    """
    if router == ENTROPY:
        threshold, _ = best_threshold(records.entropy, records, times)
        choices = {f"entropy above {threshold:.3g}": records.entropy > threshold}
        return Tuned(router, max(threshold, 0.0), compare(records, times, choices, setting.negative))
    checkpoint = load_router(
        router, pair=setting.pair, tree_budget=setting.tree_budget, hidden_size=setting.hidden_size
    )
    network = NeuralRouter(checkpoint, 0.0, "cpu")
    with torch.no_grad():
        delta = network.delta(records.hidden)
    for_eagle = delta if checkpoint.positive == setting.positive else -delta
    best, _ = best_threshold(for_eagle, records, times)
    threshold = best if checkpoint.positive == setting.positive else -best
    own = threshold_of(checkpoint, None)
    own_for_eagle = own if checkpoint.positive == setting.positive else -own
    choices = {
        f"neural, its own threshold {own:.3g}": for_eagle > own_for_eagle,
        f"neural, tuned threshold {threshold:.3g}": for_eagle > best,
    }
    return Tuned(router, threshold, compare(records, times, choices, setting.negative))


def write_threshold(router: str, threshold: float) -> Path:
    """Store a threshold in the config.json of a router's folder.

    Raises:
        ValueError: the router is no local folder with a config.json.
    """
    path = Path(router) / "config.json"
    if not path.is_file():
        raise ValueError(f"--write needs a router folder with a config.json; {router!r} is none")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"threshold": threshold}, indent=2) + "\n")
    return path

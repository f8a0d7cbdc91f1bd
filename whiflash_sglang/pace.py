"""What a round takes and yields on this machine, for choices that weigh tokens against time."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel

from whiflash_sglang.cache import cache_dir
from whiflash_sglang.clock import COMMIT, DRAFT, PARTS, VERIFY
from whiflash_sglang.row_costs import RowCosts

logger = logging.getLogger(__name__)

_REMEMBERED = 0.98  # of the tokens and seconds before, at every round: a memory of some 50 rounds
_SAVE_EVERY = 256  # rounds
_OF_ROWS = tuple(PARTS.index(part) for part in (DRAFT, VERIFY, COMMIT))


class Pace:
    """Tokens per second of late, and the seconds of a round's rows.

    Args:
        drafter: the name of the drafter whose rounds tell what rows cost.
        file: where the costs of rows are read from, if it exists, and written to; None keeps them here.

    Raises:
        ValueError: the file is there and holds no calibration.
    """

    def __init__(self, drafter: str, file: Path | None) -> None:
        self._drafter, self._file = drafter, file
        found = file is not None and file.exists()
        self.costs = RowCosts.load(file) if found and file is not None else RowCosts()
        self._tokens = self._seconds = 0.0
        self._rounds = 0
        if found:
            logger.info("WHIFLASH: the cost of verify rows is read from %s.", file)

    @property
    def tokens_per_second(self) -> float | None:
        """Of the last rounds, by any drafter; None before the first."""
        return self._tokens / self._seconds if self._seconds > 0 else None

    def observe(self, drafter: str, rows: int, tokens: int, seconds: list[float]) -> None:
        """A round is over.

        Args:
            drafter: its name.
            rows: verified, all requests together.
            tokens: committed, all requests together.
            seconds: in the order of ``clock.PARTS``.
        """
        self._tokens = _REMEMBERED * self._tokens + tokens
        self._seconds = _REMEMBERED * self._seconds + sum(seconds)
        if drafter != self._drafter:
            return
        known = self.costs.known(rows)
        self.costs.observe(rows, sum(seconds[part] for part in _OF_ROWS))
        self._rounds += 1
        if self._rounds % _SAVE_EVERY == 0 or known != self.costs.known(rows):
            self._save()

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            self.costs.save(self._file)
        except OSError as error:
            logger.warning("WHIFLASH: the cost of verify rows is not kept: %s", error)
            self._file = None


def calibration_file(given: str | None, runner: Any) -> Path:
    """The file of ``--whiflash-calibration``, or one in the cache that belongs to target, device and dtype.

    Args:
        runner: the target's ModelRunner.
    """
    if given is not None:
        return Path(given)
    cuda = runner.device == "cuda"
    device = torch.cuda.get_device_name() if cuda else f"cpu-{torch.get_num_threads()}-threads"
    config = runner.model_config
    parts = (config.model_path, device, config.dtype, get_parallel().tp_size)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    model = re.sub(r"[^\w.-]+", "-", Path(config.model_path).name)
    return cache_dir() / "calibration" / f"{model}-{digest}.json"

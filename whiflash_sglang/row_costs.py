"""How long a round's verify takes by its number of rows, learned from the rounds themselves."""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_ENOUGH = 2  # rounds of about so many rows before their time counts as known
_BUCKETS_PER_OCTAVE = 4
_DRIFT = 0.05  # weight of one round in the machine's present speed
_SLOWEST_UPDATE = 0.02  # least weight of one round in its own bucket
_OUTLIER = 2.0  # a round further off than this factor counts as this far off


@dataclass
class _Bucket:
    rows: float  # mean
    seconds: float  # at speed 1
    rounds: int


class RowCosts:
    """Seconds of a verify as a function of its rows, all requests' together.

    Rounds of about equally many rows share a bucket; between buckets the time is
    linear, and it never falls as rows grow. Every round also moves a speed that all
    buckets share, so that a machine that slows down keeps the proportions of those
    that no round has visited lately. A bucket itself moves only by what its rounds deviate
    from the latest of all: drift is the speed's alone.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._speed = 1.0
        self._deviation = 1.0  # of the last rounds, from what was expected of them

    def rounds(self, rows: int) -> int:
        """Rounds seen of about so many rows."""
        bucket = self._buckets.get(_key(rows))
        return 0 if bucket is None else bucket.rounds

    def known(self, rows: int) -> bool:
        """Whether enough rounds of about so many rows were seen."""
        return self.rounds(rows) >= _ENOUGH

    def observe(self, rows: int, seconds: float) -> None:
        """A verify of ``rows`` rows took so long."""
        at_speed_1 = seconds / self._speed
        bucket = self._buckets.setdefault(_key(rows), _Bucket(rows, at_speed_1, 0))
        bucket.rounds += 1
        ratio = min(max(at_speed_1 / bucket.seconds, 1 / _OUTLIER), _OUTLIER)
        if bucket.rounds > _ENOUGH:
            self._speed *= 1 + _DRIFT * (ratio - 1)
            self._deviation += _DRIFT * (ratio - self._deviation)
            ratio /= self._deviation
        weight = max(1 / bucket.rounds, _SLOWEST_UPDATE)
        bucket.rows += weight * (rows - bucket.rows)
        bucket.seconds *= 1 + weight * (ratio - 1)

    def seconds(self, rows: float) -> float:
        """Estimated seconds; beyond the largest and below the smallest known number along the outer pieces.

        Raises:
            ValueError: no round was seen yet.
        """
        points = self._points()
        if not points:
            raise ValueError("no round was seen yet")
        if len(points) == 1:
            return self._speed * points[0][1]
        right = next((i for i, (at, _) in enumerate(points) if at >= rows), len(points) - 1)
        (x0, y0), (x1, y1) = points[max(right, 1) - 1], points[max(right, 1)]
        return self._speed * max(y0 + (y1 - y0) * (rows - x0) / (x1 - x0), 0.0)

    def _points(self) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        for _, bucket in sorted(self._buckets.items()):
            floor = points[-1][1] if points else 0.0
            points.append((bucket.rows, max(bucket.seconds, floor)))
        return points

    # -- on disk ------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write all buckets at the present speed; a reader never sees half a file."""
        rows = [[b.rows, b.seconds * self._speed, b.rounds] for _, b in sorted(self._buckets.items())]
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".part") as staged:
            json.dump({"format": "whiflash-calibration", "rows_seconds_rounds": rows}, staged)
        os.replace(staged.name, path)

    @classmethod
    def load(cls, path: Path) -> RowCosts:
        """What an earlier run saved.

        Raises:
            ValueError: not such a file; names it.
        """
        costs = cls()
        try:
            for rows, seconds, rounds in json.loads(path.read_text())["rows_seconds_rounds"]:
                if not (rows >= 1 and seconds > 0 and rounds >= 1):
                    raise ValueError(f"{rows} rows, {seconds} seconds, {rounds} rounds")
                costs._buckets[_key(rows)] = _Bucket(float(rows), float(seconds), int(rounds))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"--whiflash-calibration {str(path)!r} is no calibration: {error!r}") from error
        return costs


def _key(rows: float) -> int:
    return round(_BUCKETS_PER_OCTAVE * math.log2(rows))

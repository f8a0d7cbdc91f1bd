"""How long a round takes: what turns acceptance lengths into tokens per second."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "round_times.json"
_INSTEAD = "give --round-times eagle3=0.08,dflash=0.06 (seconds per round) instead"


@dataclass(frozen=True)
class RoundTimes:
    """Seconds per full round (draft, verify, commit) by drafter, and per plain decode step if measured.

    ``dflash`` is the block drafter's time, with or without a tree (DFlash or DDTree).

    Raises:
        ValueError: a time that is not a positive finite number.
    """

    eagle3: float
    dflash: float
    plain: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            if name == "plain" and seconds is None:
                continue
            if not isinstance(seconds, int | float) or not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"the round time {name}={seconds!r} is not a number of seconds above 0")

    @classmethod
    def parse(cls, text: str) -> RoundTimes:
        """From ``--round-times``, e.g. ``"eagle3=0.08,dflash=0.06"``; ``plain=`` is optional.

        Raises:
            ValueError: names the flag and the text.
        """
        values: dict[str, float] = {}
        try:
            for part in text.split(","):
                name, _, seconds = part.partition("=")
                values[name.strip()] = float(seconds)
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"--round-times {text!r} is not eagle3=SECONDS,dflash=SECONDS[,plain=SECONDS] ({error})"
            ) from error

    @classmethod
    def read(cls, folder: Path) -> RoundTimes:
        """From a folder's ``round_times.json``.

        Raises:
            ValueError: missing or not as written; names the file and the flag to give instead.
        """
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            raise ValueError(f"{path} is missing; measure it, or {_INSTEAD}")
        try:
            return cls(**json.loads(path.read_text()))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} cannot be read ({error}); {_INSTEAD}") from error

    @classmethod
    def read_one_of(cls, folders: Sequence[Path]) -> RoundTimes:
        """The times that the folders agree on; folders without any are passed over.

        Raises:
            ValueError: none has any, or they differ.
        """
        found = {str(f): cls.read(f) for f in folders if (Path(f) / FILE_NAME).is_file()}
        if not found:
            return cls.read(folders[0])  # which says what is missing
        if len(set(found.values())) > 1:
            raise ValueError(f"the round times of the folders differ: {found}; {_INSTEAD}")
        return next(iter(found.values()))

    def write(self, folder: Path) -> Path:
        """Write the folder's ``round_times.json``; the folder is made."""
        path = Path(folder) / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")
        return path

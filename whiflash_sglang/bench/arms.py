"""An arm: one way to decode, in an engine and a process of its own.

SGLang keeps one configuration per process, so two engines that differ in it
cannot share one. It also means that an arm that dies takes nothing with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from whiflash_sglang.bench.answers import Answer, Request
from whiflash_sglang.bench.prompts_file import Conversation

_SHUTDOWN_SECONDS = 60


class ArmError(RuntimeError):
    """An arm did not start, or died; says which and what it last wrote."""


@dataclass(frozen=True)
class Arm:
    """What to start: SGLang's engine arguments, and WHIFLASH's options where it is that algorithm."""

    name: str
    engine_arguments: dict[str, Any]
    whiflash: dict[str, Any] | None = field(default=None)


class ArmProcess:
    """The benchmark's side of a running arm."""

    def __init__(self, arm: Arm, log: Path | None) -> None:
        """Start the arm's process; returns at once, :meth:`wait_until_ready` waits.

        Args:
            log: file for what the arm's processes print; None lets them print.
        """
        self.arm, self._log, self._ready = arm, log, False
        # Ending a process that is still starting leaks its semaphores, as the resource tracker would tell.
        os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(arm, theirs, log), name=arm.name)
        self._process.start()
        theirs.close()

    def fileno(self) -> int:
        """Readable when the arm has said something; for ``multiprocessing.connection.wait``."""
        return self._pipe.fileno()

    def wait_until_ready(self) -> None:
        """Wait for the engine.

        Raises:
            ValueError: the arm refused its arguments.
            ArmError: it died.
        """
        self._receive()
        self._ready = True

    def converse(self, group: Sequence[Conversation], request: Request) -> tuple[float, list[Answer]]:
        """Decode a group of conversations together; seconds and answers. A dead arm fails them all."""
        try:
            self._pipe.send(("converse", list(group), request))
            return self._receive()
        except (ArmError, OSError) as error:
            return 0.0, [
                Answer(c.id, c.category, prompt_ids=[], error=f"{type(error).__name__}: {error}")
                for c in group
            ]

    def two_best_logprobs(self, prefix: list[int]) -> tuple[float, float]:
        """Log-probabilities of the two best tokens after ``prefix``."""
        self._pipe.send(("two_best_logprobs", prefix))
        return self._receive()

    def close(self) -> None:
        """End the arm's processes: by its own shutdown, or at once while it is starting."""
        if self._ready:
            with contextlib.suppress(OSError):  # it may be gone already
                self._pipe.send(("close",))
            self._process.join(_SHUTDOWN_SECONDS)
        if self._process.is_alive():
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.join()
        self._pipe.close()

    def _receive(self) -> Any:
        try:
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            raise ArmError(f"the arm {self.arm.name} died{self._last_words()}") from error
        if kind == "refused":
            raise ValueError(value)
        return value

    def _last_words(self) -> str:
        if self._log is None or not self._log.exists():
            return ""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line]
        return f" ({(errors or lines or [''])[-1].strip()}; whole log: {self._log})"


def _serve(arm: Arm, pipe: Any, log: Path | None) -> None:
    """In the arm's process: start the engine, then answer until told to close."""
    if log is not None:
        _print_to(log)
    from whiflash_sglang.cpu.environment import prepare

    prepare(arm.engine_arguments.get("device"))
    from whiflash_sglang.bench.conversing import Converser

    try:
        converser = Converser(_engine(arm), arm.engine_arguments["model_path"])
    except ValueError as error:
        pipe.send(("refused", str(error)))
        return
    pipe.send(("ready", None))
    try:
        while True:
            command, *arguments = pipe.recv()
            if command == "close":
                break
            pipe.send(("done", getattr(converser, command)(*arguments)))
    except (EOFError, KeyboardInterrupt):
        pass  # the benchmark is gone, or going
    finally:
        converser.engine.shutdown()


def _engine(arm: Arm) -> Any:
    if arm.whiflash is not None:
        from whiflash_sglang.engine import make_engine

        return make_engine(whiflash=arm.whiflash, **arm.engine_arguments)
    import sglang

    return sglang.Engine(**arm.engine_arguments)


def _print_to(log: Path) -> None:
    """Send this process's stdout and stderr, and its children's, to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())

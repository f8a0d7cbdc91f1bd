"""The run: every group of conversations through every arm in turn, so that a drifting machine treats all alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

from whiflash_sglang.bench.answers import ArmRun, Request
from whiflash_sglang.bench.arms import Arm, ArmProcess
from whiflash_sglang.bench.prompts_file import Conversation

_STARTING_ON_CPU = 2  # loading takes more memory and time than running does


@contextmanager
def started(arms: Sequence[Arm], log_folder: Path | None) -> Iterator[list[ArmProcess]]:
    """Start the arms side by side, on a CPU two at a time, and end them after use.

    Raises:
        ValueError: an arm refused its arguments.
        ArmError: an arm died while it started.
    """
    processes: list[ArmProcess] = []
    starting: list[ArmProcess] = []
    try:
        for arm in arms:
            if arm.engine_arguments.get("device") == "cpu" and len(starting) == _STARTING_ON_CPU:
                _wait_for_the_first(starting)
            log = None if log_folder is None else log_folder / f"{arm.name.replace(':', '-')}.log"
            processes.append(ArmProcess(arm, log))
            starting.append(processes[-1])
        while starting:
            _wait_for_the_first(starting)
        yield processes
    finally:
        for process in processes:
            process.close()


def _wait_for_the_first(starting: list[ArmProcess]) -> None:
    """Until an arm is ready, which leaves the list, or one has refused or died: then at once."""
    said = wait([process.fileno() for process in starting])
    for process in [process for process in starting if process.fileno() in said]:
        process.wait_until_ready()
        starting.remove(process)


def run_arms(
    arms: Sequence[ArmProcess],
    conversations: Sequence[Conversation],
    request: Request,
    concurrency: int,
) -> list[ArmRun]:
    """Run all conversations through all arms, ``concurrency`` at a time.

    Groups hold one category, so that a category's throughput is over the wall
    time of its own requests. Ctrl-C ends the run; what is there is returned.
    """
    runs = [ArmRun(process.arm.name) for process in arms]
    with tqdm(total=len(conversations) * len(arms), unit="conv", desc="benchmark") as bar:
        try:
            for group in _groups(conversations, concurrency):
                for process, run in zip(arms, runs, strict=True):
                    seconds, answers = process.converse(group, request)
                    run.add(group[0].category, seconds, answers)
                    bar.update(len(group))
        except KeyboardInterrupt:
            bar.write("interrupted: reporting what is there")
    return runs


def _groups(conversations: Sequence[Conversation], size: int) -> list[list[Conversation]]:
    by_category: dict[str, list[Conversation]] = {}
    for conversation in conversations:
        by_category.setdefault(conversation.category, []).append(conversation)
    return [members[i : i + size] for members in by_category.values() for i in range(0, len(members), size)]

"""Every test process runs SGLang's CPU engine, also on a machine with a GPU.

Two processes share the suite: the engine tests are one group, since only one engine
runs at a time, and all others run beside them.
"""

import os
from pathlib import Path

import pytest

from whiflash_sglang.cpu.environment import prepare

ENGINE_TESTS = Path(__file__).parent / "engine"

if "PYTEST_XDIST_WORKER" in os.environ:  # two processes of two threads each would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")
prepare("cpu")


def pytest_itemcollected(item):
    """The engine tests are one group of ``--dist loadgroup``."""
    if ENGINE_TESTS in item.path.parents:
        item.add_marker(pytest.mark.xdist_group("engine"))

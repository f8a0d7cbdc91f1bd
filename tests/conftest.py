"""Every test process runs SGLang's CPU engine, also on a machine with a GPU.

Two processes share the suite file by file, so that what a file sets up is set up once;
only one engine runs at a time in each.
"""

import os

from whiflash_sglang.cpu.environment import prepare

if "PYTEST_XDIST_WORKER" in os.environ:  # two processes of two threads each would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")
prepare("cpu")

import os
import subprocess
import sys
from pathlib import Path

from whiflash_kernels import compile_report

# Kernels are interpreted in the test process, so a process of its own compiles them.
SCRIPT = """
import sys
from dataclasses import replace
from whiflash_kernels import compile_report as report
launch = [l for l in report.recorded_launches() if l.name.startswith("ddtree_build")][-1]
starved = replace(launch, options={**launch.options, "maxnreg": 24})
print("starved kernel spills:", report.compiled_usage(starved, 90).spilled > 0)
print("SGLang imported:", "sglang" in sys.modules or "whiflash_sglang" in sys.modules)
raise SystemExit(report.main(["--sm", "90", "--quick"]))
"""


def test_every_kernel_compiles_for_sm_90_without_a_spill_and_without_sglang():
    package = Path(compile_report.__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(package)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starved kernel spills: True" in done.stdout
    assert "SGLang imported: False" in done.stdout
    assert "0 spill; in no example: none" in done.stdout


def test_interpreted_kernels_are_not_reported_as_compiled(capsys):
    assert compile_report.main(["--sm", "90"]) == 1
    assert "TRITON_INTERPRET" in capsys.readouterr().out

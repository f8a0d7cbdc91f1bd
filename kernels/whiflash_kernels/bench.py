"""Times every op on this machine's GPU and checks it in the same run: ``python -m whiflash_kernels.bench``.

Each op's results are compared with its plain-torch reference on fresh random
inputs, then both are timed with a cold L2 cache (``triton.testing.do_bench``,
medians). The floor is the larger of the bytes an op must move over the bandwidth of
a device copy and the time of a tiny kernel, both measured first.

It needs only torch and triton, and is meant to take under three minutes: references are
compiled with ``torch.compile`` one shape an op first, and no more once time is short.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton

from whiflash_kernels.bench_cases import Case, cases

NO_GPU = "No GPU that torch can use on this machine: nothing is timed here."
_LAST_COMPILE_AFTER = 90.0  # seconds from the start; one compilation takes seconds
_COLUMNS = "{:<19} {:<30} {:>9} {:>9} {:>6} {:>7} {:>9} {:>9}  {}"


@dataclass
class Result:
    """Times in ms; None where something was not measured."""

    case: Case
    problem: str = ""
    kernel: float | None = None
    eager: float | None = None
    compiled: float | None = None


@dataclass(frozen=True)
class Floors:
    """What this GPU can do at best."""

    bytes_per_ms: float
    launch: float

    def of(self, case: Case) -> tuple[float, str]:
        """The least time in ms that a case can take, and what bounds it."""
        memory = case.bytes_moved / self.bytes_per_ms
        return (memory, "memory") if memory > self.launch else (self.launch, "launch")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 if any result was wrong."""
    parser = argparse.ArgumentParser(
        prog="whiflash_kernels.bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--op", help="only this op")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the random inputs")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    started = time.monotonic()
    torch.manual_seed(options.seed)
    floors = measure_floors()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print(
        f"seed {options.seed}, copy {floors.bytes_per_ms / 1e9:.2f} TB/s, launch {1e3 * floors.launch:.1f} us"
    )
    results = [measure(case) for case in cases() if options.op in (None, case.op)]
    for result in first_of_each_op_first(results):
        if time.monotonic() - started < _LAST_COMPILE_AFTER:
            time_compiled(result)
    print_table(results, floors)
    print(f"{time.monotonic() - started:.0f} s")
    return int(any(result.problem for result in results))


def measure_floors() -> Floors:
    """Bandwidth of a device copy far larger than any cache, and the time of a tiny kernel."""
    source = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    target, one = torch.empty_like(source), torch.zeros(1, device="cuda")
    copy = _time(lambda: target.copy_(source))
    return Floors(2 * source.numel() / copy, _time(lambda: one.add_(1)))


def measure(case: Case) -> Result:
    """Check a case, then time kernel and reference; a wrong result is not timed."""
    result = Result(case)
    try:
        check(case, "cuda")
    except Exception as error:  # one broken op must not hide the others
        result.problem = " ".join(f"{type(error).__name__}: {error}".split())
        return result
    inputs = case.make("cuda")
    result.kernel = _time(lambda: case.kernel(*inputs))
    result.eager = _time(lambda: case.reference(*inputs))
    return result


def check(case: Case, device: str) -> None:
    """Raise AssertionError unless kernel and reference agree on fresh inputs."""
    inputs = case.make(device)
    copies = tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs)
    got = outputs(case, case.kernel, inputs)
    expected = outputs(case, case.reference, copies)
    assert len(got) == len(expected) > 0, f"{len(got)} results, the reference has {len(expected)}"
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=case.tolerance, atol=case.tolerance, equal_nan=True)


def outputs(case: Case, function: Callable[..., object], inputs: tuple) -> list[torch.Tensor]:
    """What a call returns and what it writes in place."""
    returned = function(*inputs)
    tensors = returned if isinstance(returned, tuple) else (returned,)
    return [t for t in tensors if isinstance(t, torch.Tensor)] + [inputs[i] for i in case.written]


def first_of_each_op_first(results: list[Result]) -> list[Result]:
    """One shape of every op, then their second shapes, and so on."""
    by_op = [list(group) for _, group in itertools.groupby(results, key=lambda r: r.case.op)]
    return [r for layer in itertools.zip_longest(*by_op) for r in layer if r is not None]


def time_compiled(result: Result) -> None:
    """Time the reference under torch.compile, where that says something."""
    if result.problem or result.case.loops:
        return
    try:
        torch.compiler.reset()
        compiled = torch.compile(result.case.reference, dynamic=False)
        inputs = result.case.make("cuda")
        result.compiled = _time(lambda: compiled(*inputs))
    except Exception as error:  # no C compiler, say; the column is left empty
        print(f"torch.compile of {result.case.op}: {str(error).splitlines()[0]}", file=sys.stderr)


def print_table(results: list[Result], floors: Floors) -> None:
    """One row a case."""
    print(_COLUMNS.format("op", "shape", "us", "MB", "floor", "share", "eager", "compiled", "result"))
    for result in results:
        case, (floor, bound) = result.case, floors.of(result.case)
        print(
            _COLUMNS.format(
                case.op,
                case.shape,
                "-" if result.kernel is None else f"{1e3 * result.kernel:.1f}",
                f"{case.bytes_moved / 1e6:.3f}",
                bound,
                "-" if result.kernel is None else f"{floor / result.kernel:.0%}",
                _ratio(result.eager, result.kernel),
                _ratio(result.compiled, result.kernel),
                f"WRONG: {result.problem}" if result.problem else "equal",
            )
        )
    print("eager, compiled: torch's time over the kernel's, so above 1 the kernel is faster.")
    looped = sorted({result.case.op for result in results if result.case.loops})
    if looped:
        print(f"The references of {', '.join(looped)} loop in Python: no measure of what torch could do.")


def _ratio(other: float | None, kernel: float | None) -> str:
    return "-" if other is None or kernel is None else f"{other / kernel:.2f}x"


def _time(function: Callable[[], object]) -> float:
    return triton.testing.do_bench(function, warmup=5, rep=25, return_mode="median")


if __name__ == "__main__":
    sys.exit(main())

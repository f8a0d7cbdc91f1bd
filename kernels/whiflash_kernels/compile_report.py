"""Compile every kernel for NVIDIA GPUs, on a machine without one, and report what each needs.

``python -m whiflash_kernels.compile_report [--sm 90 80 100] [--quick]`` prints registers,
spilled bytes, shared memory and instructions per kernel, and exits with 1 if a kernel
spills or is in no example.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

from whiflash_kernels.compile_cases import MODULES, calls


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its arguments by name, and options such as num_warps."""

    example: str
    kernel: JITFunction
    arguments: dict[str, Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The kernel's name with its module's."""
        return _name(self.kernel)


@dataclass(frozen=True)
class Usage:
    """What a compiled kernel needs of the device."""

    registers: int  # a thread
    spilled: int  # bytes of local memory a thread
    shared: int  # bytes a program
    instructions: int


def main(arguments: list[str] | None = None) -> int:
    """Print the report; 1 if a kernel spills or is in no example, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sm", type=int, nargs="+", default=[90, 80, 100], help="compute capabilities (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="one variant of each kernel only")
    chosen = parser.parse_args(arguments)
    kernels = {_name(kernel) for kernel in _kernels().values()}
    if not kernels:
        print("no kernel can be compiled: they are interpreted here (is TRITON_INTERPRET set?)")
        return 1
    launches = recorded_launches()
    if chosen.quick:
        launches = list({launch.name: launch for launch in reversed(launches)}.values())[::-1]
    spilling = _print_table(launches, chosen.sm)
    missing = sorted(kernels - {launch.name for launch in launches})
    print(
        f"{len(kernels)} kernels, {len(launches)} variants; {spilling} spill; in no example: {missing or 'none'}"
    )
    return int(spilling > 0 or bool(missing))


def _print_table(launches: list[Launch], targets: list[int]) -> int:
    """A row for each launch and compute capability; how many spill."""
    print(
        f"{'kernel':38}{'example':20}{'sm':>4}{'registers':>11}{'spilled':>9}{'shared':>8}{'instructions':>14}"
    )
    spilling = 0
    for launch in launches:
        for sm in targets:
            usage = compiled_usage(launch, sm)
            spilling += usage.spilled > 0
            numbers = f"{usage.registers:11}{usage.spilled:9}{usage.shared:8}{usage.instructions:14}"
            print(f"{launch.name:38}{launch.example:20}{sm:4}{numbers}", flush=True)
    return spilling


def recorded_launches() -> list[Launch]:
    """The distinct launches of all examples."""
    launches: list[Launch] = []
    known: set[str] = set()
    for example, launcher, arguments in calls():
        with _recording(example) as recorded:
            launcher(*arguments)
        for launch in recorded:
            key = f"{launch.name} {_signature(launch)} {launch.options}"
            if key not in known:
                known.add(key)
                launches.append(launch)
    return launches


def compiled_usage(launch: Launch, sm: int) -> Usage:
    """Compile for one compute capability and read the binary's needs."""
    signature, constants, attributes = _signature(launch)
    source = ASTSource(launch.kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=dict(launch.options))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage = _disassembler("-res-usage", cubin.name)
        code = _disassembler("-sass", cubin.name)
    needs = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    instructions = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP)\S", code, re.MULTILINE)
    return Usage(needs["REG"], needs["STACK"] + needs["LOCAL"], compiled.metadata.shared, len(instructions))


def _disassembler(option: str, path: str) -> str:
    command = [triton.knobs.nvidia.cuobjdump.path, option, path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _name(kernel: JITFunction) -> str:
    return f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}"


def _kernels() -> dict[tuple[Any, str], JITFunction]:
    """Every kernel by (module, name); helpers that kernels call do not end in ``_kernel``."""
    return {
        (module, name): value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, JITFunction) and name.endswith("_kernel")
    }


@contextmanager
def _recording(example: str) -> Iterator[list[Launch]]:
    """Inside this block launching a kernel only adds to the list."""
    launches: list[Launch] = []
    kernels = _kernels()
    try:
        for (module, name), kernel in kernels.items():
            setattr(module, name, _Recorder(example, kernel, launches))
        yield launches
    finally:
        for (module, name), kernel in kernels.items():
            setattr(module, name, kernel)


@dataclass(frozen=True)
class _Recorder:
    """Stands in for a kernel."""

    example: str
    kernel: JITFunction
    launches: list[Launch]

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def record(*positional: Any, **named: Any) -> None:
            names = self.kernel.arg_names
            options = {name: value for name, value in named.items() if name not in names}
            arguments = dict(zip(names, positional, strict=False)) | {
                name: value for name, value in named.items() if name in names
            }
            self.launches.append(Launch(self.example, self.kernel, arguments, options))

        return record


def _signature(launch: Launch) -> tuple[dict[str, str], dict[tuple[int], Any], dict[tuple[int], list[Any]]]:
    """Types, constants and attributes by Triton's rules: 1 is a constant, multiples of 16 are known as such."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[Any]] = {}
    for place, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        if parameter.is_constexpr or (type(value) is int and value == 1):
            signature[parameter.name] = "constexpr"
            constants[(place,)] = value
            continue
        signature[parameter.name] = mangle_type(value)
        aligned = isinstance(value, torch.Tensor) or (type(value) is int and value % 16 == 0)
        if aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


if __name__ == "__main__":
    raise SystemExit(main())

"""Every kernel runs under Triton's interpreter here, on CPU tensors.

``TRITON_INTERPRET=1`` works only if set before Triton is first imported, and child
processes inherit it. Instead, each test swaps the compiled functions of Triton's
library and of this package for interpreted ones, and puts everything back. Outputs
start as garbage: ``torch.empty`` gives NaN, or an integer type's largest value.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

# The interpreter patches these, and modules, while a kernel runs, and leaves them so after a nested call.
_PATCHED_CLASSES = (tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)


@pytest.fixture(autouse=True)
def _interpreted_kernels() -> Iterator[None]:
    with interpreted():
        yield


@pytest.fixture(autouse=True)
def _garbage_in_new_tensors() -> Iterator[None]:
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.set_deterministic_debug_mode("default")


@contextmanager
def interpreted() -> Iterator[None]:
    """All of ``whiflash_kernels`` imported so far runs under the interpreter inside this block."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith(("triton.language", "whiflash_kernels")) and module is not None
    ]
    before = [(owner, dict(vars(owner))) for owner in (*modules, *_PATCHED_CLASSES)]
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        try:
            _swap_compiled_functions(modules)
            yield
        finally:
            for owner, attributes in before:
                _restore(owner, attributes)


def _swap_compiled_functions(modules: list[Any]) -> None:
    swapped: dict[int, InterpretedFunction] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                setattr(module, name, swapped.setdefault(id(value), InterpretedFunction(value.fn)))


def _restore(owner: Any, attributes: dict[str, Any]) -> None:
    for name, value in list(vars(owner).items()):
        if name not in attributes:
            if isinstance(owner, type):  # in modules these are names that rewritten functions look up
                delattr(owner, name)
        elif value is not attributes[name]:
            setattr(owner, name, attributes[name])

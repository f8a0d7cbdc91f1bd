"""The contract with SGLang: every name relied on, checked against the installed source at registration.

The check reads source files and imports none of them, so that registering the
plugin stays light in processes that never decode.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from whiflash_sglang.contract_table import REQUIREMENTS, SGLANG_VERSION, Requirement


class ContractError(RuntimeError):
    """The installed SGLang lacks names that WHIFLASH relies on."""

    def __init__(self, installed: str, missing: list[str]) -> None:
        super().__init__(
            f"WHIFLASH does not fit the installed SGLang {installed}: it lacks {'; '.join(missing)}. "
            f"Install sglang=={SGLANG_VERSION}."
        )
        self.missing = missing


def check(requirements: Iterable[Requirement] = REQUIREMENTS) -> None:
    """Compare the requirements with the installed SGLang.

    Raises:
        ContractError: names every missing module, object, member and parameter.
    """
    missing = [text for requirement in requirements for text in _missing(requirement)]
    if missing:
        raise ContractError(version("sglang"), missing)


def register_refusal(error: ContractError) -> None:
    """Register WHIFLASH as an algorithm that tells why it cannot run, and change nothing else.

    SGLang swallows a plugin's exception; without this, a user would only read
    "Unknown speculative algorithm".
    """
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    def refuse(server_args: object) -> None:
        raise error

    @SpeculativeAlgorithm.register("WHIFLASH", validate_server_args=refuse)
    def worker_class(server_args: object) -> type:
        raise error


def _missing(requirement: Requirement) -> list[str]:
    tree = _module(requirement.module)
    if tree is None:
        return [f"module {requirement.module}"]
    node = _find(tree, requirement.name)
    where = f"{requirement.module}.{requirement.name}"
    if node is None:
        return [where]
    gaps = []
    if requirement.parameters:
        has = _parameters(node)
        lost = [p for p in requirement.parameters if p not in has]
        if lost:
            gaps.append(f"parameter(s) {', '.join(lost)} of {where}")
    if requirement.members:
        has = _members(node)
        lost = [m for m in requirement.members if m not in has]
        if lost:
            gaps.append(f"member(s) {', '.join(lost)} of {where}")
    return gaps


@cache
def _module(name: str) -> ast.Module | None:
    package = find_spec("sglang")
    if package is None or not package.submodule_search_locations:
        return None
    stem = Path(package.submodule_search_locations[0]).joinpath(*name.split(".")[1:])
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text())
    return None


def _find(tree: ast.AST, name: str) -> ast.AST | None:
    """The definition of ``Class.method`` or ``function`` or ``NAME``, also below an ``if`` or ``try``.

    A class that takes the name of one it imports is the definition, not the import.
    """
    first, _, rest = name.partition(".")
    assigned = None
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name == first:
                return _find(node, rest) if rest else node
        elif not rest and assigned is None and first in _assigned(node):
            assigned = node
    return assigned


def _assigned(node: ast.AST) -> list[str]:
    """Plain names that a statement assigns or imports."""
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    return []


def _parameters(node: ast.AST) -> set[str]:
    """Parameters of a function, or of a class's ``__init__`` (its fields, for a dataclass)."""
    if isinstance(node, ast.ClassDef):
        init = _find_direct(node, "__init__")
        if init is None:
            return {name for child in node.body for name in _assigned(child)}
        node = init
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return set()
    arguments = node.args
    return {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def _find_direct(node: ast.ClassDef, name: str) -> ast.AST | None:
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.name == name:
            return child
    return None


def _members(node: ast.AST) -> set[str]:
    """Methods, class attributes, and attributes set on ``self`` anywhere in a class."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(child.name)
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            found.add(child.attr)
        else:
            found.update(_assigned(child))
    return found

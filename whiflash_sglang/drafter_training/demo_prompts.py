"""Extra prompts for the demo's drafters: functions of Python's standard library, and tasks on made-up tables.

Nothing is stored: functions are read from the running Python, tables are drawn from a seed.
"""

from __future__ import annotations

import importlib
import inspect
import random
import sys
import textwrap
import warnings
from collections.abc import Iterator
from types import FunctionType

_PACKAGES_LEFT_OUT = {"antigravity", "this", "idlelib", "tkinter", "turtle", "turtledemo", "test", "lib2to3"}
_CODING_FORMS = (
    "Write a solution to the following problem:\n```python\n{stub}\n```",
    "Complete this Python function so that it passes its tests:\n```python\n{stub}\n```",
    "Solve the following problem and make sure that the tests pass.\n```python\n{stub}\n```",
)
_COLUMNS = {
    "Orders": ("Customer", "Item", "Quantity", "Price", "Date", "Status"),
    "Players": ("Name", "Club", "Position", "Goals", "Season", "Nationality"),
    "Rivers": ("River", "Country", "Length", "Basin", "Mouth"),
    "Films": ("Title", "Director", "Year", "Genre", "Gross", "Studio"),
    "Flights": ("Airline", "Origin", "Destination", "Departure", "Seats", "Fare"),
    "Elections": ("District", "Candidate", "Party", "Votes", "Result", "Year"),
    "Albums": ("Artist", "Album", "Label", "Released", "Chart", "Sales"),
    "Stations": ("Station", "Line", "Opened", "Platforms", "Zone", "Passengers"),
}
_SQL_TASKS = (
    "Which {a} has the highest {b}?",
    "How many rows have {a} equal to '{v}'?",
    "What is the {a} where {b} is '{v}'?",
    "Insert a row with {a} '{v}' and {b} '{w}'.",
    "Change {a} to '{v}' wherever {b} is '{w}'.",
    "Delete the rows whose {a} is '{v}'.",
    "List the {a} and the average {b}, largest first.",
)
_VALUES = ("North", "Blue", "1998", "12", "Anna Berg", "Lisbon", "open", "3.5", "Team B", "2004-05-01", "K7")


def coding_prompts(limit: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """(id, "coding", user turn) for ``limit`` documented functions of the standard library."""
    functions = sorted(_documented_functions(), key=lambda item: item[0])
    rng = random.Random(seed)
    rng.shuffle(functions)
    forms = (rng.choice(_CODING_FORMS).format(stub=stub) for _, stub in functions[:limit])
    names = (f"stdlib-{name}" for name, _ in functions[:limit])
    return [(name, "coding", form) for name, form in zip(names, forms, strict=True)]


def table_prompts(limit: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """(id, "agentic", user turn) for ``limit`` tasks on made-up tables."""
    rng = random.Random(seed)
    prompts = []
    for number in range(limit):
        table, columns = rng.choice(sorted(_COLUMNS.items()))
        a, b = rng.sample(columns, 2)
        v, w = rng.sample(_VALUES, 2)
        task = rng.choice(_SQL_TASKS).format(a=a, b=b, v=v, w=w)
        text = (
            f"You work on a MySQL database. The table `{table}` has the columns {', '.join(columns)}.\n"
            f"Say in one sentence what you will do, then write one SQL statement.\n\nTask: {task}"
        )
        prompts.append((f"table-{seed}-{number}", "agentic", text))
    return prompts


def _documented_functions() -> Iterator[tuple[str, str]]:
    """(qualified name, signature with docstring) of pure-Python functions with a real docstring."""
    for module_name in sorted(sys.stdlib_module_names):
        if module_name.startswith("_") or module_name in _PACKAGES_LEFT_OUT:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(module_name)
        except Exception:
            continue  # a module of another platform
        for name, value in sorted(vars(module).items()):
            if getattr(value, "__module__", None) != module_name:
                continue  # imported from elsewhere
            methods = sorted(vars(value).items()) if isinstance(value, type) else []
            for owner, function in [(name, value), *((f"{name}.{method}", f) for method, f in methods)]:
                stub = _stub(owner, function)
                if stub is not None:
                    yield f"{module_name}.{owner}", stub


def _stub(qualified: str, function: object) -> str | None:
    if not isinstance(function, FunctionType):
        return None
    name, doc = qualified.rsplit(".", 1)[-1], inspect.getdoc(function)
    if name.startswith("_") or not doc or not 40 <= len(doc) <= 700:
        return None
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):
        return None
    quoted = textwrap.indent(f'"""{doc}\n"""', "    ")
    return f"def {name}{signature}:\n{quoted}"

"""`fedsim list`: what there is, in the words of its own docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from types import ModuleType
from typing import Any

from fedsim import algorithms, participation, problems
from fedsim.scenario_file import shipped


def lines() -> list[str]:
    """Scenarios, algorithms (paper, wire, defaults), problems and policies."""
    return [
        *_section(
            "Scenarios (fedsim run NAME)",
            {name: _sentence(_docstring(path)) for name, path in shipped().items()},
        ),
        "Algorithms (fs.algorithms)",
        *(line for name in algorithms.__all__ for line in _algorithm(name, getattr(algorithms, name))),
        "",
        *_section(
            "Problems (fs.problems)",
            {name: _sentence(getattr(problems, name).__doc__) for name in problems.__all__},
        ),
        *_section("Policies (fs.participation)", {_call(f): _sentence(f.__doc__) for f in _policies(participation)}),
    ][:-1]


def _section(title: str, entries: dict[str, str]) -> list[str]:
    wide = max(map(len, entries), default=0)
    return [title, *(f"  {name:{wide}}  {text}" for name, text in entries.items()), ""]


def _algorithm(name: str, cls: Any) -> list[str]:
    """The opening of the algorithm's file is its paper; `Wire:` says what it sends."""
    text = " ".join((inspect.getdoc(inspect.getmodule(cls)) or "").split())
    wire = re.search(r"Wire: (.*?)\.(?= |$)", text)
    if inspect.isfunction(cls):  # another paper's algorithm, made from one of these
        return [f"  {name}", f"    {_sentence(cls.__doc__)}", f"    arguments  {_call(cls).partition('(')[2][:-1]}"]
    given = [f.name if f.default is MISSING else f"{f.name}={f.default}" for f in fields(cls) if f.init]
    told = {
        "": _sentence(inspect.getmodule(cls).__doc__),
        "wire": wire[1] if wire else "",
        "arguments": ", ".join(given),
    }
    return [f"  {name}", *(f"    {key + '  ' if key else ''}{value}" for key, value in told.items() if value)]


def _policies(module: ModuleType) -> list[Callable[..., Any]]:
    """The factories: public functions that return one of the module's own policies."""
    made = [f for n, f in vars(module).items() if inspect.isfunction(f) and not n.startswith("_")]
    return [f for f in made if hasattr(getattr(module, str(f.__annotations__.get("return")), None), "select")]


def _call(function: Callable[..., Any]) -> str:
    given = inspect.signature(function).parameters.values()
    told = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in given]
    return f"{function.__name__}({', '.join(told)})"


def _docstring(path: Any) -> str | None:
    """Read, never run."""
    return ast.get_docstring(ast.parse(path.read_bytes()))


def _sentence(text: str | None) -> str:
    """The first line of a docstring."""
    return inspect.cleandoc(text).split("\n")[0] if text else ""

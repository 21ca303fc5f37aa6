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
from fedsim.scenario import Scenario
from fedsim.scenario_file import shipped

POLICY: Any = next(f.default_factory for f in fields(Scenario) if f.name == "participation")
WHO = {"selected": "the selected", "all": "all"}


def lines() -> list[str]:
    """Scenarios, algorithms (paper, wire, memory, participation, arguments), problems and policies."""
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


def _algorithm(name: str, made: Any) -> list[str]:
    """The opening of the algorithm's file is its paper; `Wire:`, `Memory:` and `Participation:` are sentences in it."""
    told = facts(made)
    return [f"  {name}", f"    {told.pop('paper')}", *(f"    {key}  {value}" for key, value in told.items() if value)]


def facts(made: Any) -> dict[str, str]:
    """What is told of an algorithm: paper, wire, memory, participation, arguments. "" for what its file leaves out."""
    file = inspect.getmodule(made).__doc__
    if inspect.isfunction(made):  # another algorithm made from a file's own, which says how it differs
        own, reach, arguments = made.__doc__ or "", "selected", _call(made).partition("(")[2][:-1]
    else:
        own, reach = file or "", getattr(made, "reach", "selected")
        given = [f.name if f.default is MISSING else f"{f.name}={f.default}" for f in fields(made) if f.init]
        arguments = ", ".join(given)
    wire, memory, paper = (_said(word, own) or _said(word, file) for word in ("Wire", "Memory", "Participation"))
    participation = f"{POLICY.__name__}() unless set; {paper}; the broadcast goes to {WHO[reach]}" if paper else ""
    return {
        "paper": _sentence(own), "wire": wire, "memory": memory, "participation": participation, "arguments": arguments
    }  # fmt: skip


def _said(word: str, text: str | None) -> str:
    """The sentence of a docstring that begins with `word:`."""
    found = re.search(rf"\b{word}: (.*?)\.(?= |$)", " ".join((text or "").split()))
    return found[1] if found else ""


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

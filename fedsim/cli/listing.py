"""`fedsim list`: what there is, in the words of its own docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType
from typing import Any

from fedsim import algorithms, codecs, data, devices, metrics, participation, privacy, problems, topologies
from fedsim import text as units
from fedsim.metrics.classification import PREDICTIVE
from fedsim.protocols import Codec, PolicyLike, as_algorithm, missing
from fedsim.scenario import Scenario
from fedsim.scenario_file import shipped

POLICY: Any = next(f.default_factory for f in fields(Scenario) if f.name == "participation")
SHORT = 16  # columns of a name that has its sentence beside it
WHO = {"selected": "the selected", "all": "all"}


def lines(wide: int = units.DEFAULT_WIDTH) -> list[str]:
    """Everything there is, a section each, in at most so many columns."""
    return [
        *_section(
            "Scenarios (fedsim run NAME)",
            {name: _sentence(_docstring(path)) for name, path in shipped().items()},
            wide,
        ),
        "Algorithms (fs.algorithms)",
        *(line for name in algorithms.__all__ for line in _algorithm(name, getattr(algorithms, name), wide)),
        "",
        *_section("Problems (fs.problems)", {c.__name__: _sentence(c.__doc__) for c in _problems()}, wide),
        *_section("Data sets (fs.data.load)", {", ".join(data.NAMES): "By name; or the path of an npz file."}, wide),
        *_section("Partitioners (fs.data)", _calls(_partitioners()), wide),
        *_section("Policies (fs.participation)", _calls(_policies(participation)), wide),
        *_section("Devices (fs.devices)", _calls(_functions(devices)), wide),
        *_section("Networks (fs.topologies)", _calls(_functions(topologies)), wide),
        *_section("Codecs (fs.codecs)", {_call(c): _sentence(c.__doc__) for c in _codecs()}, wide),
        *_section("Metrics (fs.metrics)", _calls(_metrics()), wide),
        *_section("", {", ".join(PREDICTIVE): "By name, where the problem has test data and predicts."}, wide),
    ][:-1]


def _section(title: str, entries: dict[str, str], wide: int) -> list[str]:
    """Name and sentence side by side, or one below the other where the name is long."""
    lines = [title] if title else []
    column = min(max(map(len, entries), default=0), SHORT) + 4
    for name, text in entries.items():
        if len(name) <= SHORT:
            lines += units.wrapped(f"  {name:{column - 2}}{text}", wide, indent=column)
        else:
            lines += [*units.wrapped(f"  {name}", wide, indent=4), *units.wrapped(f"      {text}", wide, indent=6)]
    return [*lines, ""]


def _algorithm(name: str, made: object, wide: int) -> list[str]:
    """The docstring opens with the paper; `Wire:`, `Memory:` and `Participation:` are sentences in it."""
    described = facts(made)
    rows = [described.pop("paper"), *(f"{key}  {value}" for key, value in described.items() if value)]
    return [f"  {name}", *(piece for row in rows for piece in units.wrapped(f"    {row}", wide, indent=6))]


def facts(made: Any) -> dict[str, str]:
    """What is told of an algorithm, by name; "" for what its file leaves out."""
    file: Any = made.__doc__
    if inspect.isfunction(made):  # another algorithm made from a file's own class, and says how it differs
        file = next(c.__doc__ for c in _classes(inspect.getmodule(made)) if c.__module__ == made.__module__)
        own, reach, arguments = made.__doc__ or "", "selected", _call(made).partition("(")[2][:-1]
    else:
        own, reach = file or "", as_algorithm(made).broadcast_to
        given = [f.name if f.default is MISSING else f"{f.name}={f.default}" for f in fields(made) if f.init]
        arguments = ", ".join(given)
    words = ("Wire", "Memory", "Participation", "Exchange")
    wire, memory, paper, exchange = (_said(word, own) or _said(word, file) for word in words)
    participation = f"{POLICY.__name__}() unless set; {paper}; the broadcast goes to {WHO[reach]}" if paper else ""
    return {
        "paper": _sentence(own), "wire": wire, "memory": memory, "participation": participation, "exchange": exchange,
        "arguments": arguments,
    }  # fmt: skip


def _said(word: str, text: str | None) -> str:
    """The sentence of a docstring that begins with `word:`."""
    found = re.search(rf"\b{word}: (.*?)\.(?= |$)", " ".join((text or "").split()))
    return found[1] if found else ""


def _policies(module: ModuleType) -> list[Callable[..., Any]]:
    """The factories: public functions that return one of the module's own policies."""
    made = [f for n, f in vars(module).items() if inspect.isfunction(f) and not n.startswith("_")]
    return [f for f in made if not missing(getattr(module, str(f.__annotations__.get("return")), None), PolicyLike)]


def _functions(module: ModuleType) -> list[Callable[..., Any]]:
    """What the module says is for everybody, if it is a function."""
    return [f for f in (getattr(module, name) for name in module.__all__) if inspect.isfunction(f)]


def _classes(module: Any) -> list[type]:
    return [c for n, c in vars(module).items() if inspect.isclass(c) and is_dataclass(c) and not n.startswith("_")]


def _problems() -> list[Any]:
    """Its classes: a function there is a helper."""
    return [c for c in (getattr(problems, name) for name in problems.__all__) if inspect.isclass(c)]


def _partitioners() -> list[Callable[..., Any]]:
    """The functions that say who holds which rows."""
    return [f for f in _functions(data) if f.__module__ == data.natural.__module__]


def _codecs() -> list[Any]:
    return [c for c in _classes(codecs) if not missing(c, Codec) and c.__module__.startswith(codecs.__name__)]


def _metrics() -> list[Callable[..., Any]]:
    """The factories: public functions that return a metric, which has columns."""
    made = [f for f in [*_functions(metrics), privacy.spent] if is_dataclass(_returned(f))]
    return [f for f in made if hasattr(_returned(f), "columns") or "columns" in _returned(f).__dataclass_fields__]


def _returned(function: Callable[..., Any]) -> Any:
    return getattr(inspect.getmodule(function), str(function.__annotations__.get("return")), None)


def _calls(functions: list[Callable[..., Any]]) -> dict[str, str]:
    return {_call(f): _sentence(f.__doc__) for f in functions}


def _call(function: Callable[..., Any]) -> str:
    given = inspect.signature(function).parameters.values()
    arguments = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in given]
    return f"{function.__name__}({', '.join(arguments)})"


def _docstring(path: Any) -> str | None:
    """Read, never run."""
    return ast.get_docstring(ast.parse(path.read_bytes()))


def _sentence(text: str | None) -> str:
    """The first line of a docstring."""
    return inspect.cleandoc(text).split("\n")[0] if text else ""

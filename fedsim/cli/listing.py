"""`fedsim list`: scenarios and public parts with the first lines of their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType
from typing import Any

from fedsim import algorithms, codecs, data, devices, metrics, participation, privacy, problems, topologies
from fedsim.metrics.classification import PREDICTIVE
from fedsim.protocols import Codec, PolicyLike, as_algorithm, missing
from fedsim.scenario import Scenario
from fedsim.scenario_file import shipped
from fedsim.text import DEFAULT_WIDTH, wrapped

POLICY: Any = next(f.default_factory for f in fields(Scenario) if f.name == "participation")
SHORT = 16  # longer names have their sentence on the next line
RECEIVERS = {"selected": "the selected clients", "all": "all clients"}


def lines(width: int = DEFAULT_WIDTH) -> list[str]:
    """Return a section per kind of part, in at most `width` columns."""
    return [
        *_section(
            "Scenarios (fedsim run NAME)",
            {name: _sentence(_docstring(path)) for name, path in shipped().items()},
            width,
        ),
        "Algorithms (fs.algorithms)",
        *(line for name in algorithms.__all__ for line in _algorithm(name, getattr(algorithms, name), width)),
        "",
        *_section("Problems (fs.problems)", {c.__name__: _sentence(c.__doc__) for c in _problems()}, width),
        *_section(
            "Data sets (fs.data.load)", {", ".join(data.NAMES): "Name of a data set, or path of an npz file."}, width
        ),
        *_section("Partitioners (fs.data)", _calls(_partitioners()), width),
        *_section("Policies (fs.participation)", _calls(_policies(participation)), width),
        *_section("Devices (fs.devices)", _calls(_functions(devices)), width),
        *_section("Networks (fs.topologies)", _calls(_functions(topologies)), width),
        *_section("Codecs (fs.codecs)", {_call(c): _sentence(c.__doc__) for c in _codecs()}, width),
        *_section("Metrics (fs.metrics)", _calls(_metrics()), width),
        *_section("", {", ".join(PREDICTIVE): "By name, for problems with test data and predictions."}, width),
    ][:-1]


def _section(title: str, entries: dict[str, str], width: int) -> list[str]:
    """Return names and sentences side by side, or on two lines for long names."""
    lines = [title] if title else []
    column = min(max(map(len, entries), default=0), SHORT) + 4
    for name, text in entries.items():
        if len(name) <= SHORT:
            lines += wrapped(f"  {name:{column - 2}}{text}", width, indent=column)
        else:
            lines += [*wrapped(f"  {name}", width, indent=4), *wrapped(f"      {text}", width, indent=6)]
    return [*lines, ""]


def _algorithm(name: str, made: object, width: int) -> list[str]:
    """Return the first line of the docstring, then its `Wire:`, `Memory:` and `Participation:` sentences."""
    described = facts(made)
    rows = [described.pop("paper"), *(f"{key}  {value}" for key, value in described.items() if value)]
    return [f"  {name}", *(piece for row in rows for piece in wrapped(f"    {row}", width, indent=6))]


def facts(made: Any) -> dict[str, str]:
    """Return the facts about an algorithm by name; "" for a fact that its docstring lacks."""
    file: Any = made.__doc__
    if inspect.isfunction(made):  # a factory that sets arguments of the class in its file
        file = next(c.__doc__ for c in _classes(inspect.getmodule(made)) if c.__module__ == made.__module__)
        own, receivers, arguments = made.__doc__ or "", "selected", _call(made).partition("(")[2][:-1]
    else:
        own, receivers = file or "", as_algorithm(made).broadcast_to
        given = [f.name if f.default is MISSING else f"{f.name}={f.default}" for f in fields(made) if f.init]
        arguments = ", ".join(given)
    words = ("Wire", "Memory", "Participation", "Exchange")
    wire, memory, paper, exchange = (_statement(word, own) or _statement(word, file) for word in words)
    participation = (
        f"{POLICY.__name__}() by default; {paper}; the broadcast goes to {RECEIVERS[receivers]}" if paper else ""
    )
    return {
        "paper": _sentence(own), "wire": wire, "memory": memory, "participation": participation, "exchange": exchange,
        "arguments": arguments,
    }  # fmt: skip


def _statement(word: str, text: str | None) -> str:
    """Return the sentence of a docstring that begins with `word:`."""
    found = re.search(rf"\b{word}: (.*?)\.(?= |$)", " ".join((text or "").split()))
    return found[1] if found else ""


def _policies(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the factories: public functions that return a policy of the module."""
    made = [f for n, f in vars(module).items() if inspect.isfunction(f) and not n.startswith("_")]
    return [f for f in made if not missing(getattr(module, str(f.__annotations__.get("return")), None), PolicyLike)]


def _functions(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the public functions of a module."""
    return [f for f in (getattr(module, name) for name in module.__all__) if inspect.isfunction(f)]


def _classes(module: Any) -> list[type]:
    return [c for n, c in vars(module).items() if inspect.isclass(c) and is_dataclass(c) and not n.startswith("_")]


def _problems() -> list[Any]:
    """Return the public classes of `fedsim.problems`."""
    return [c for c in (getattr(problems, name) for name in problems.__all__) if inspect.isclass(c)]


def _partitioners() -> list[Callable[..., Any]]:
    """Return the functions that assign rows to clients."""
    return [f for f in _functions(data) if f.__module__ == data.natural.__module__]


def _codecs() -> list[Any]:
    return [c for c in _classes(codecs) if not missing(c, Codec) and c.__module__.startswith(codecs.__name__)]


def _metrics() -> list[Callable[..., Any]]:
    """Return the factories: public functions that return a metric, which has columns."""
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
    """Return the docstring of a file without executing it."""
    return ast.get_docstring(ast.parse(path.read_bytes()))


def _sentence(text: str | None) -> str:
    """Return the first line of a docstring."""
    return inspect.cleandoc(text).split("\n")[0] if text else ""

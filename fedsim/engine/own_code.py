"""The code that a scenario brings along: its functions, and classes that neither fedsim nor another package ships.

A manifest names them; two of one name may differ in what they do. So the identity of a run has a digest of their
bytecode, defaults, captured values and class attributes as well. What they call elsewhere is not followed; of a
scenario file and its neighbours the whole source counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

DEEP = 12  # values inside values that are looked at
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, range)


def code_digest(scenario: object) -> str:
    """32 hex digits, the same in every process of one Python version."""
    walk = _Walk()
    walk.visit(scenario, (), captured=False)
    return walk.seen.hexdigest()


class _Walk:
    """Through all parts of a value, in a fixed order."""

    def __init__(self) -> None:
        self.seen = blake2b(digest_size=16)
        self._classes: set[type] = set()

    def visit(self, value: object, path: tuple[int, ...], captured: bool) -> None:
        """Plain values count where code has captured them; elsewhere the manifest has them."""
        if isinstance(value, (*PLAIN, np.ndarray)):
            if captured:
                self._note(value)
            return
        if len(path) == DEEP or id(value) in path:
            return
        if isinstance(value, type):
            if value in self._classes or _shipped(value):
                return
            self._classes.add(value)
        captured = captured or isinstance(value, (type, FunctionType))
        for inner in _inside(value):
            self.visit(inner, (*path, id(value)), captured)

    def _note(self, value: object) -> None:
        if isinstance(value, np.ndarray):
            self.seen.update(f"{value.dtype}{value.shape}".encode())
            value = value.tolist() if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()
        self.seen.update(repr(value).encode(errors="backslashreplace") + b"\0")


def _inside(value: object) -> Iterator[Any]:
    """What a value consists of, as far as that decides what a run does."""
    if isinstance(value, (tuple, list)):
        yield from value
    elif isinstance(value, (set, frozenset)):
        yield from sorted(map(repr, value))
    elif isinstance(value, Mapping):
        yield from (part for item in value.items() for part in item)
    elif isinstance(value, CodeType):
        yield from (value.co_code, value.co_names, value.co_varnames, value.co_consts)
    elif isinstance(value, FunctionType):
        yield from (value.__code__, value.__defaults__, value.__kwdefaults__, *_captured(value))
    elif isinstance(value, type):
        yield from (part for name, member in sorted(vars(value).items()) for part in _written(name, member))
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif _shipped(type(value)) and not _ours(type(value)):  # such as a function that Numba has compiled
        yield getattr(value, "__wrapped__", None)
    else:
        yield from type(value).__mro__
        own = [f.name for f in fields(value)] if is_dataclass(value) else sorted(vars(value)) if _open(value) else []
        yield from (getattr(value, name) for name in own if not name.startswith("_"))


def _written(name: str, member: object) -> Iterator[Any]:
    """A class's member with its name, if somebody wrote it: a function in whatever wrapping, or a constant."""
    if isinstance(member, (staticmethod, classmethod)):
        yield from (name, member.__func__)
    elif isinstance(member, property):
        yield from (name, member.fget, member.fset)
    elif isinstance(member, cached_property):
        yield from (name, member.func)
    elif isinstance(member, FunctionType) or (isinstance(member, (*PLAIN, tuple)) and not name.startswith("__")):
        yield from (name, member)


def _captured(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # named before it was made
            continue


def _ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "fedsim"


def _open(value: object) -> bool:
    return hasattr(value, "__dict__")


def _shipped(cls: type) -> bool:
    """Whether a class comes with fedsim, Python or an installed package, whose versions the manifest has."""
    if _ours(cls) or cls.__module__.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)

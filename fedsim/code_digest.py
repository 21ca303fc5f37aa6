"""The modules that a scenario file brings along: their sources decide a run's bits as much as the file's own does.

They are found in the text, without running it: every import, in functions too, of the file and of what it imports,
that leads neither into the standard library, nor into installed packages, nor into fedsim itself; the scenarios that
ship with fedsim have neighbours like anybody's.

The code that a scenario brings along: its functions, and classes that neither fedsim nor another package ships.

A manifest names them; two of one name may differ in what they do. So the identity of a run has a digest of their
bytecode, defaults, captured values and class attributes as well. What they call elsewhere is not followed; of a
scenario file and its neighbours the whole source counts.

What a compiled kernel is made of: its own file, the files of kernels, `rules` and `rng` that it imports, and so on.

Numba itself looks at the function's own file alone, but machine code holds the code of all the functions that it calls.
What else changes is no reason to compile anew, nor is a file that was only touched.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, partial
from hashlib import blake2b
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

_CALLS = ("import_module", "__import__")  # of a name that is written out


def imported_sources(source: str) -> dict[str, Path]:
    """Module names and files of all that the source imports, directly or not, in order of their names."""
    found: dict[str, Path] = {}
    todo: list[tuple[str | bytes, str]] = [(source, "")]
    while todo:
        text, package = todo.pop()
        for name in _imports(text, package):
            for spec in _specs(name):
                path = Path(spec.origin) if spec.origin else None
                if spec.name in found or path is None or path.suffix != ".py" or not _is_own(path):
                    continue
                found[spec.name] = path
                inside = spec.name if spec.submodule_search_locations is not None else spec.parent or ""
                todo.append((_bytes(path), inside))
    return dict(sorted(found.items()))


def sums(found: dict[str, Path]) -> dict[str, str]:
    """A digest of each module's source."""
    return {name: blake2b(_bytes(path), digest_size=8).hexdigest() for name, path in found.items()}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # whoever imports it will say so
        return b""


def _imports(text: str | bytes, package: str) -> Iterator[str]:
    """The dotted names that a source imports, with what may be submodules; none where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in _CALLS and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _specs(name: str) -> Iterator[ModuleSpec]:
    """The module and the packages around it, from the outermost in, as far as they are there."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names or parts[0] == "fedsim":
        return
    within: list[str] | None = None
    for i in range(len(parts)):
        spec = _spec(".".join(parts[: i + 1]), within)
        if spec is None:
            return
        yield spec
        if spec.submodule_search_locations is None:
            return
        within = list(spec.submodule_search_locations)
        if spec.origin and not _is_own(Path(spec.origin)):
            return  # what an installed package holds is covered by its version


def _spec(name: str, within: list[str] | None) -> ModuleSpec | None:
    try:
        spec = PathFinder.find_spec(name, within)
        # A package installed in place may be found by a finder of its own, which knows top-level names only.
        return spec if spec is not None or "." in name or name in sys.modules else find_spec(name)
    except (ImportError, ValueError, AttributeError, OSError):
        return None


def _is_own(path: Path) -> bool:
    """Whether a file is the user's, or one of the shipped scenarios: not Python's, not installed, not ours."""
    full = path.absolute()
    if full.is_relative_to(Path(__file__).absolute().parent / "scenarios"):
        return True
    if any(part in ("site-packages", "dist-packages") for part in full.parts):
        return False
    return not any(full.is_relative_to(home) for home in _homes())


@cache
def _homes() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    homes = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*(Path(home).absolute() for home in sorted(homes)), Path(__file__).absolute().parent)


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


ROOT = Path(__file__).parents[1]
FOLLOWED = ("fedsim.kernels", "fedsim.rng", "fedsim.rules")  # nothing else of ours is compiled in
FROM = re.compile(r"^\s*from\s+(fedsim[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE)
WHOLE = re.compile(r"^\s*import\s+(fedsim[\w.]+)", re.MULTILINE)


@cache
def digest_of(file: Path) -> str:
    """Changes with every file that a kernel in `file` may hold code of."""
    known, to_read = {file}, [file]
    while to_read:
        for other in _imported(to_read.pop()) - known:
            known.add(other)
            to_read.append(other)
    together = blake2b(digest_size=16)
    for each in sorted(known):
        together.update(blake2b(_source(each)).digest())
    return together.hexdigest()


@cache
def _source(file: Path) -> bytes:
    return file.read_bytes()


@cache
def _imported(file: Path) -> frozenset[Path]:
    """The files that this one imports of those that count, wherever in it that happens."""
    text = _source(file).decode()
    found = {_file(module) for module in WHOLE.findall(text)}
    for module, imports in FROM.findall(text):
        names = {_file(f"{module}.{name}") or _file(module) for name in re.findall(r"\w+", imports)}
        found |= names  # a package's own file only for what is no module of it
    return frozenset(path for path in found if path is not None)


def _file(module: str) -> Path | None:
    if not module.startswith(FOLLOWED):
        return None
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)

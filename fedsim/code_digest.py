"""Digests of the code that a run depends on.

    imported_sources(source)   the user's modules that a scenario file imports
    source_digests(found)      a digest of each of these modules
    syntax_digest(source)      a digest of a source without comments and layout
    code_digest(scenario)      a digest of the user's functions and classes in a Scenario
    kernel_digest(file)        a digest of all files whose code a kernel may contain

Imports are found in the text, without executing it. Installed packages, the standard library and fedsim are covered by
their versions. `code_digest` reads bytecode, defaults, captured values and class attributes: a manifest names functions
and classes, and two of the same name may differ. It does not follow calls into other modules.
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

ROOT = Path(__file__).parents[1]
KERNEL_CODE = ("fedsim.kernels", "fedsim.rng", "fedsim.rules")  # the only modules that kernels are compiled from
IGNORED = re.compile(r"#[^\n]*|\\\r?\n")  # comments and line continuations
IMPORT = re.compile(
    r"""\b(?:from[ \t]+(?P<base>[\w.]+)[ \t]+import\b[ \t]*(?P<names>\([^)]*\)|[^\n;]*)
    |import[ \t]+(?P<modules>[^\n;]*)
    |(?:import_module|__import__)\(\s*["'](?P<call>[\w.]+))""",
    re.VERBOSE,
)

# --- Imports -----------------------------------------------------------------------------------------


def _imports(text: str, package: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modules that a source imports, each with the names that are imported from it.

    A regular expression, since parsing all kernels would delay every start. It may also match text in strings; such
    names lead to no file.
    """
    for match in IMPORT.finditer(IGNORED.sub(" ", text)):
        if match["base"]:
            base = match["base"].lstrip(".")
            level = len(match["base"]) - len(base)
            parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            module = ".".join([*parts, *([base] if base else [])])
            if module:
                yield module, tuple(_first_words(match["names"].strip("()")))
        else:
            yield from ((module, ()) for module in _first_words(match["modules"] or match["call"]))


def _first_words(listed: str) -> list[str]:
    """Return the names in "a.b as c, d", without their aliases."""
    return [words[0] for each in listed.split(",") if (words := re.findall(r"[\w.]+", each))]


def imported_sources(source: str) -> dict[str, Path]:
    """Return names and files of the user's modules that a source imports, directly or not, sorted by name."""
    found: dict[str, Path] = {}
    todo: list[tuple[str, str]] = [(source, "")]
    while todo:
        for module, names in _imports(*todo.pop()):
            for spec in (s for name in (module, *(f"{module}.{n}" for n in names)) for s in _specs(name)):
                path = Path(spec.origin) if spec.origin else None
                if spec.name in found or path is None or path.suffix != ".py" or not _is_users(path):
                    continue
                found[spec.name] = path
                package = spec.name if spec.submodule_search_locations is not None else spec.parent or ""
                todo.append((_bytes(path).decode(errors="replace"), package))
    return dict(sorted(found.items()))


def source_digests(found: dict[str, Path]) -> dict[str, str]:
    """Return a digest of each module's code."""
    return {name: syntax_digest(_bytes(path)) for name, path in found.items()}


def syntax_digest(source: str | bytes) -> str:
    """Return a digest of a source that comments and layout do not change; of all of it if it does not parse."""
    try:
        text = repr(_syntax(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = repr(source)
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _syntax(node: object) -> object:
    """Return a tree as tuples, without positions and without empty fields, which differ between Python versions."""
    if isinstance(node, ast.AST):
        kept = (
            (name, value)
            for name, value in ast.iter_fields(node)
            if isinstance(node, ast.Constant) or value not in (None, [])
        )
        return (type(node).__name__, *((name, _syntax(value)) for name, value in kept))
    return [_syntax(item) for item in node] if isinstance(node, list) else node


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the import itself will fail with a better message
        return b""


def _specs(name: str) -> Iterator[ModuleSpec]:
    """Yield the specs of a module and of the packages around it, outermost first, as far as they exist."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names or parts[0] == "fedsim":
        return
    locations: list[str] | None = None
    for i in range(len(parts)):
        spec = _spec(".".join(parts[: i + 1]), locations)
        if spec is None:
            return
        yield spec
        if spec.submodule_search_locations is None:
            return
        locations = list(spec.submodule_search_locations)
        if spec.origin and not _is_users(Path(spec.origin)):
            return  # an installed package is covered by its version


def _spec(name: str, locations: list[str] | None) -> ModuleSpec | None:
    try:
        spec = PathFinder.find_spec(name, locations)
        # An editable install may have its own finder, which finds top-level names only.
        return spec if spec is not None or "." in name or name in sys.modules else find_spec(name)
    except (ImportError, ValueError, AttributeError, OSError):
        return None


def _is_users(path: Path) -> bool:
    """Return whether a file belongs to the user or to the shipped scenarios, not to Python, a package or fedsim."""
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


@cache
def kernel_digest(file: Path) -> str:
    """Return a digest of the file and of all kernel code that it imports, directly or not.

    Numba checks a kernel's own file only, but machine code contains the code of all callees. A changed modification
    time alone does not change the digest.
    """
    known, todo = {file}, [file]
    while todo:
        new = _imported_kernel_files(todo.pop()) - known
        known |= new
        todo.extend(new)
    digest = blake2b(digest_size=16)
    for each in sorted(known):
        digest.update(blake2b(_source(each)).digest())
    return digest.hexdigest()


@cache
def _source(file: Path) -> bytes:
    return file.read_bytes()


@cache
def _imported_kernel_files(file: Path) -> frozenset[Path]:
    """Return the files of kernel code that a file imports; a package's own file only for names that are no modules."""
    found = set()
    for module, names in _imports(_source(file).decode()):
        found |= {_kernel_file(f"{module}.{name}") or _kernel_file(module) for name in names} or {_kernel_file(module)}
    return frozenset(path for path in found if path is not None)


def _kernel_file(module: str) -> Path | None:
    if not module.startswith(KERNEL_CODE):
        return None
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


# --- Bytecode ----------------------------------------------------------------------------------------

MAX_DEPTH = 12  # of nested values
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, range)


def code_digest(scenario: object) -> str:
    """Return 32 hex digits, the same in every process of one Python version."""
    walk = _Walk()
    walk.visit(scenario, (), captured=False)
    return walk.digest.hexdigest()


class _Walk:
    """A walk through all parts of a value, in a fixed order."""

    def __init__(self) -> None:
        self.digest = blake2b(digest_size=16)
        self._classes: set[type] = set()

    def visit(self, value: object, path: tuple[int, ...], captured: bool) -> None:
        """Visit a value. Plain values count if code has captured them; all others are in the manifest."""
        if isinstance(value, (*PLAIN, np.ndarray)):
            if captured:
                self._update(value)
            return
        if len(path) == MAX_DEPTH or id(value) in path:
            return
        if isinstance(value, type):
            if value in self._classes or _has_version(value):
                return
            self._classes.add(value)
        captured = captured or isinstance(value, (type, FunctionType))
        for part in _parts(value):
            self.visit(part, (*path, id(value)), captured)

    def _update(self, value: object) -> None:
        if isinstance(value, np.ndarray):
            self.digest.update(f"{value.dtype}{value.shape}".encode())
            value = value.tolist() if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()
        self.digest.update(repr(value).encode(errors="backslashreplace") + b"\0")


def _parts(value: object) -> Iterator[Any]:
    """Yield the parts of a value that decide what a run computes."""
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
        yield from (part for name, member in sorted(vars(value).items()) for part in _member(name, member))
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif _has_version(type(value)) and not _is_fedsims(type(value)):  # such as a function that Numba has compiled
        yield getattr(value, "__wrapped__", None)
    else:
        yield from type(value).__mro__
        attributes = [f.name for f in fields(value)] if is_dataclass(value) else sorted(getattr(value, "__dict__", ()))
        yield from (getattr(value, name) for name in attributes if not name.startswith("_"))


def _member(name: str, member: object) -> Iterator[Any]:
    """Yield a class member and its name if it is a function, wrapped or not, or a constant."""
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
        except ValueError:  # a variable without a value yet
            continue


def _is_fedsims(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "fedsim"


def _has_version(cls: type) -> bool:
    """Return whether a class belongs to fedsim, Python or an installed package, whose versions are in the manifest."""
    if _is_fedsims(cls) or cls.__module__.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)

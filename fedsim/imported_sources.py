"""The modules that a scenario file brings along: their sources decide a run's bits as much as the file's own does.

They are found in the text, without running it: every import, in functions too, of the file and of what it imports,
that leads neither into the standard library, nor into installed packages, nor into fedsim itself; the scenarios that
ship with fedsim have neighbours like anybody's.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

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

"""What a compiled kernel is made of: its own file, the files of kernels, `rules` and `rng` that it imports, and so on.

Numba itself looks at the function's own file alone, but machine code holds the code of all the functions that it calls.
What else changes is no reason to compile anew, nor is a file that was only touched.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
        together.update(blake2b(_bytes(each)).digest())
    return together.hexdigest()


@cache
def _bytes(file: Path) -> bytes:
    return file.read_bytes()


@cache
def _imported(file: Path) -> frozenset[Path]:
    """The files that this one imports of those that count, wherever in it that happens."""
    text = _bytes(file).decode()
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

"""Tests stand alone: what several of them need is in oracles, strategies, tools or a module beside them."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported(path: Path) -> list[str]:
    """Return the dotted names that a file imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module or ''}.{name.name}" for name in node.names]
    return found


def test_no_file_imports_a_test_module() -> None:
    files = sorted(TESTS.rglob("*.py"))
    modules = {path.stem for path in files if path.name.startswith("test_")}
    assert len(modules) > 100
    wrong = [
        (str(path.relative_to(TESTS)), name)
        for path in files
        for name in imported(path)
        if modules & {*name.split(".")}
    ]
    assert not wrong

"""Compiled kernels are dropped when a file that they hold code of changes, and only then."""

import ast
from pathlib import Path

import pytest

import fedsim
from fedsim import code_digest

KERNELS = Path(fedsim.__file__).parent / "kernels"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Four kernels: a calls b through a module, b calls c through a bracketed import; d stands alone."""
    folder = tmp_path / "fedsim" / "kernels"
    folder.mkdir(parents=True)
    for name, text in {
        "__init__": "from fedsim.kernels import d\n",
        "a": "from fedsim.kernels import b\n",
        "b": "from fedsim.kernels.c import (\n    one,\n    other,\n)\n",
        "c": "one = other = 1\n",
        "d": "import math\n",
    }.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(code_digest, "ROOT", tmp_path)
    return folder


def digests(folder):
    for remembered in (code_digest.digest_of, code_digest._source, code_digest._imported):
        remembered.cache_clear()
    return {name: code_digest.digest_of(folder / f"{name}.py") for name in "abcd"}


@pytest.mark.parametrize("changed, dropped", [("a", "a"), ("b", "ab"), ("c", "abc"), ("d", "d")])
def test_a_change_drops_what_holds_its_code_and_nothing_else(tree, changed, dropped):
    before = digests(tree)
    with open(tree / f"{changed}.py", "a") as file:
        file.write("more = 2\n")
    after = digests(tree)
    assert "".join(name for name in "abcd" if before[name] != after[name]) == dropped


def test_a_file_that_was_only_touched_drops_nothing(tree):
    before = digests(tree)
    (tree / "c.py").touch()
    assert digests(tree) == before


def test_every_import_of_a_kernel_is_seen():
    """By Python's own parser, which would take too long at every start."""
    for path in KERNELS.rglob("*.py"):
        seen = code_digest._imported(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(code_digest.FOLLOWED):
                for alias in node.names:
                    home = code_digest._file(f"{node.module}.{alias.name}") or code_digest._file(node.module)
                    assert home in seen, f"{path}: {node.module}.{alias.name}"


def test_no_kernel_is_made_inside_a_function_where_it_could_hold_code_that_its_file_does_not_import():
    for path in KERNELS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inside = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n is not node]
                decorators = {ast.unparse(d) for n in inside for d in n.decorator_list}
                assert not {d for d in decorators if d.endswith(("jit", "inline"))}, f"{path}: {node.name}"

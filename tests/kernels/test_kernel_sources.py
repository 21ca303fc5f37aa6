"""A cached kernel is compiled again when a file that it contains code of changes, and only then."""

import ast
from pathlib import Path

import pytest

import fedsim
from fedsim import code_digest

PACKAGE = Path(fedsim.__file__).parent
KERNELS = PACKAGE / "kernels"


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
    for function in (code_digest.kernel_digest, code_digest._source, code_digest._imported_kernel_files):
        function.cache_clear()
    return {name: code_digest.kernel_digest(folder / f"{name}.py") for name in "abcd"}


@pytest.mark.parametrize("changed, recompiled", [("a", "a"), ("b", "ab"), ("c", "abc"), ("d", "d")])
def test_a_change_recompiles_the_kernels_that_contain_its_code_and_no_others(tree, changed, recompiled):
    before = digests(tree)
    with open(tree / f"{changed}.py", "a") as file:
        file.write("more = 2\n")
    after = digests(tree)
    assert "".join(name for name in "abcd" if before[name] != after[name]) == recompiled


def test_a_new_modification_time_recompiles_nothing(tree):
    before = digests(tree)
    (tree / "c.py").touch()
    assert digests(tree) == before


def test_every_import_of_a_kernel_is_found():
    """Python's own parser finds the same imports; it is too slow for every start."""
    for path in KERNELS.rglob("*.py"):
        found = code_digest._imported_kernel_files(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(code_digest.KERNEL_CODE):
                for alias in node.names:
                    home = code_digest._kernel_file(f"{node.module}.{alias.name}")
                    home = home or code_digest._kernel_file(node.module)
                    assert home in found, f"{path}: {node.module}.{alias.name}"


def parsed_imports(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def test_every_import_of_every_file_of_this_project_is_found():
    for path in (*PACKAGE.rglob("*.py"), *Path(__file__).parents[1].rglob("*.py")):
        text = path.read_text()
        found = {(module, name) for module, names in code_digest._imports(text) for name in (None, *names)}
        assert found.issuperset((m, n) for m, n in parsed_imports(text) if n != "*"), path


@pytest.mark.parametrize(
    "text, module",
    [
        ("if 1: import a", "a"),
        ("x = 1; import a.b as c, d", "d"),
        ("from a \\\n    import b", "a"),
        ("from a import (  # (a comment)\n    b,\n    c,  # another\n)", "a.c"),
        ("import_module('a.b')", "a.b"),
        ("__import__(\n    'a')", "a"),
        ("from . import b", "package.b"),
        ("from .a import b", "package.a"),
        ("from .. import b", "b"),
    ],
)
def test_imports_are_found_in_every_form(text, module):
    package = "package" if not text.startswith("from ..") else "outer.package"
    found = {
        name for base, names in code_digest._imports(text, package) for name in (base, *(f"{base}.{n}" for n in names))
    }
    assert (module if package == "package" else "outer.b") in found


def test_no_kernel_is_defined_inside_a_function():
    """It could contain code that its file does not import."""
    for path in KERNELS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                inside = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n is not node]
                decorators = {ast.unparse(d) for n in inside for d in n.decorator_list}
                assert not {d for d in decorators if d.endswith(("jit", "inline"))}, f"{path}: {node.name}"

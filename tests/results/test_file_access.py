"""Files of result folders are opened, written, renamed and removed in one module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedsim

ROOT = Path(fedsim.__file__).parent
ELSEWHERE = {
    "results/files.py": "the one module",
    "results/process.py": "reads /proc",
    "sweeps/workers.py": "opens the null device",
    "running/replay.py": "opens a session of a runtime",
}
MODULES = sorted(
    path
    for path in [*ROOT.glob("results/*.py"), *ROOT.glob("running/*.py"), *ROOT.glob("sweeps/*.py"), ROOT / "cli/report.py"]
    if path.relative_to(ROOT).as_posix() not in ELSEWHERE
)  # fmt: skip
OF_PATHS = {
    "chmod", "hardlink_to", "mkdir", "open", "read_bytes", "read_text", "rmdir", "rmtree", "symlink_to", "touch",
    "truncate", "unlink", "write_bytes", "write_text",
}  # fmt: skip
OF_OS = OF_PATHS | {"link", "makedirs", "remove", "removedirs", "rename", "renames", "replace", "symlink"}


def accesses(source: str) -> list[str]:
    """Return the calls that open or change files: `open`, methods of paths, functions of os and shutil."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            found.append("open")
        elif isinstance(node.func, ast.Attribute):
            of = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            one_argument = node.func.attr in ("replace", "rename") and len(node.args) == 1 and not node.keywords
            names = OF_OS if of in ("os", "shutil") else OF_PATHS
            if of != "files" and (node.func.attr in names or one_argument):
                found.append(f"{of}.{node.func.attr}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_other_module_opens_or_changes_files(path: Path) -> None:
    assert accesses(path.read_text()) == []


def test_the_check_finds_an_access() -> None:
    for line in (
        "open(p)",
        "p.open()",
        "p.read_bytes()",
        "os.rename(p, q)",
        "p.replace(q)",
        "shutil.rmtree(p)",
        "(p / q).unlink()",
    ):
        assert len(accesses(line)) == 1
    assert accesses("files.remove(p); text.replace('a', 'b'); frame.rename(columns={})") == []

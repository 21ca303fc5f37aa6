"""Files of result folders are opened, written, renamed and removed in one module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedsim

ROOT = Path(fedsim.__file__).parent
ELSEWHERE = {  # what else is opened, read, renamed or removed, by file or folder
    "results/files.py": "the one module",
    "results/process.py": "reads /proc",
    "sweeps/workers.py": "opens the null device",
    "cli/terminal.py": "opens the null device",
    "runtime/ray/private.py": "opens the null device",
    "runtime/ray/folder.py": "the temporary folder of Ray",
    "kernels/cache.py": "the cache of compiled kernels",
    "kernels/cuda/device.py": "reads sources of kernels",
    "data/store.py": "data sets and their cache",
    "readers.py": "reads files that a user names",
    "network/graph.py": "reads a file that a user names",
    "flower/loading.py": "reads the folder of an app",
    "flower/work.py": "reads a profile that a user names",
    "scenario_file.py": "reads scenario files",
    "cli/listing.py": "reads scenario files",
    "code_digest.py": "reads source files",
    "reproduce/claims.py": "reads claims",
    "reproduce/stored.py": "kept results beside the claims",
    "docs/": "reads pages, writes the site of the manual",
    "analysis/report/html.py": "reads files of the package",
    "analysis/effects.py": "renames columns",
    "checks.py": "reads the limits of memory",
    "engine/": "opens sessions, rounds and visits",
    "testing/algorithms.py": "opens a session of a runtime",
    "running/replay.py": "opens a session of a runtime",
}
MODULES = sorted(
    path for path in ROOT.rglob("*.py") if not path.relative_to(ROOT).as_posix().startswith(tuple(ELSEWHERE))
)
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


@pytest.mark.parametrize("place", ELSEWHERE)
def test_an_exception_is_needed(place: str) -> None:
    found = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).as_posix().startswith(place)]
    assert any(accesses(path.read_text()) for path in found)


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

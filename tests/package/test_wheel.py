"""The wheel is complete: from an empty folder, without the source tree, it runs the scenario that it ships."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.installing import PARTS, ROOT, run


class Installed(NamedTuple):
    programs: Path
    site: Path
    files: list[Path]  # of the package in the source tree


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment that holds the wheel and, by a .pth file, this one's dependencies."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"  # a copy, because building leaves files in the tree
    source.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    pip = (sys.executable, "-m", "pip")
    files = [
        f.relative_to(source) for f in (source / "fedsim").rglob("*") if f.is_file() and f.parent.name != "__pycache__"
    ]
    run(*pip, "wheel", source, "--no-deps", "-w", work / "dist", cwd=work)
    shutil.rmtree(source)
    run(sys.executable, "-m", "venv", "--without-pip", work / "env", cwd=work)
    python = work / "env" / "bin" / "python"
    (wheel,) = (work / "dist").glob("*.whl")
    run(*pip, "--python", python, "install", "--no-deps", wheel, cwd=work)
    # What a .pth file adds comes last and brings no .pth files of its own: an editable fedsim is not seen.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=work).strip())
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(paths)))
    return Installed(python.parent, site, files)


def test_the_project_file_lists_every_package_of_the_tree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = sorted(path.parent.relative_to(ROOT) for path in (ROOT / "fedsim").rglob("__init__.py"))
    found = [".".join(folder.parts) for folder in folders]
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted([*found, "fedsim.scenarios"])


@pytest.mark.slow
def test_the_shipped_scenario_runs_from_the_wheel_in_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    home = run(installed.programs / "python", "-c", "import fedsim; print(fedsim.__file__)", cwd=tmp_path)
    assert Path(home).is_relative_to(installed.site)
    printed = run(installed.programs / "fedsim", "run", "quickstart", cwd=tmp_path)
    assert "local_steps" in printed
    assert (tmp_path / "quickstart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(installed: Installed) -> None:
    assert len(installed.files) > 50
    assert [file for file in installed.files if not (installed.site / file).is_file()] == []

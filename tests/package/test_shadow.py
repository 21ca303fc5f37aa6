"""A clone called fedsim does not stand in the way of the package: not where it lies, nor one folder above."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from tools.installing import PARTS, ROOT, run


def test_the_scenarios_are_linked_into_the_package_so_that_an_editable_install_is_a_plain_path() -> None:
    assert (ROOT / "fedsim" / "scenarios").resolve() == ROOT / "scenarios"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-dir"] == {"": "."}


@pytest.mark.slow
def test_an_editable_install_is_found_from_the_folder_above_the_clone(tmp_path: Path) -> None:
    clone = tmp_path / "fedsim"
    clone.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, clone / part, symlinks=True)
        else:
            shutil.copy(ROOT / part, clone / part)
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "-e", clone, cwd=tmp_path)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (site / "zz_dependencies.pth").write_text(sysconfig.get_path("purelib"))
    for folder in (tmp_path, clone):
        code = "import fedsim; print(fedsim.__file__, fedsim.Budget.__name__)"
        printed = subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout
        assert printed.split() == [str(clone / "fedsim" / "__init__.py"), "Budget"]

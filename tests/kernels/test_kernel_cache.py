"""Compiled kernels are cached where possible; a folder that is read-only, full or damaged stops no run."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = """
import sys
from fedsim.kernels.cache import jit
sys.path.insert(0, "."); import kernel
print(kernel.twice(21), end="")
"""
KERNEL = "from fedsim.kernels.cache import jit\n\n\n@jit\ndef twice(x):\n    return 2 * x\n"


def go(folder, **environment):
    """Compile and call a small kernel that lives in `folder`."""
    (folder / "kernel.py").write_text(KERNEL) if not (folder / "kernel.py").exists() else None
    own = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-B", "-c", SMALL], cwd=folder, env=own | {"PYTHONPATH": root} | environment, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "42"
    return done.stderr


def test_kernels_are_cached_without_a_message(tmp_path):
    assert go(tmp_path) == ""
    assert len(list((tmp_path / "__pycache__").glob("*.nbc"))) == 1
    assert go(tmp_path) == ""


RARE = [(w, d) for w in ("nbi", "nbc") for d in ("cut", "emptied", "nonsense")]


@pytest.mark.parametrize(
    "what, damage", [("nbi", "flipped"), ("nbc", "flipped"), *(pytest.param(*p, marks=pytest.mark.slow) for p in RARE)]
)
def test_a_damaged_cache_is_deleted_and_rebuilt(tmp_path, what, damage):
    go(tmp_path)
    (file,) = (tmp_path / "__pycache__").glob(f"*.{what}")
    data = file.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    file.write_bytes({"cut": data[:middle], "emptied": b"", "flipped": flipped, "nonsense": b"\x80" * 99}[damage])
    said = go(tmp_path)
    assert "damaged" in said
    assert said.count("\n") == 1
    assert go(tmp_path) == ""  # rebuilt


def test_a_temporary_folder_replaces_one_that_is_not_writable(tmp_path):
    (tmp_path / "__pycache__").write_text("in the way")  # also for root, who may write anywhere
    (tmp_path / "home").write_text("no folder")
    said = go(tmp_path, HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path))
    assert said.count("\n") == 1
    assert "this run uses a temporary folder" in said
    assert not list(tmp_path.glob("fedsim-kernels-*"))  # removed at the end


def test_a_full_disk_stops_no_run(tmp_path):
    full = "import builtins, os\nreal = os.replace\ndef replace(a, b):\n    if '__pycache__' in str(b) and str(b).endswith('nbc'):\n        raise OSError(28, 'No space left on device')\n    return real(a, b)\nos.replace = replace\n"
    (tmp_path / "kernel.py").write_text(full + KERNEL)
    said = go(tmp_path)
    assert said.count("\n") == 1
    assert "No space left on device" in said


def test_machine_code_under_another_key_is_not_loaded(tmp_path):
    """Two processes that save at the same time can leave such a file."""
    swapped = (
        "from fedsim.kernels.cache import jit\n\n\n@jit\ndef twice(x):\n    return 2 * x\n\n\ntwice(1.5), twice(1)\n"
    )
    (tmp_path / "kernel.py").write_text(swapped)
    go(tmp_path)
    first, second = sorted((tmp_path / "__pycache__").glob("*.nbc"))
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert go(tmp_path) == ""  # and 42 as before


class Touch:
    """An object whose pickle makes a file when it is read."""

    def __reduce__(self):
        return os.mkdir, ("owned",)


@pytest.mark.parametrize("what", ["nbi", "nbc"])
def test_a_file_is_unpickled_only_after_its_digest_was_checked(tmp_path, what):
    go(tmp_path)
    (file,) = (tmp_path / "__pycache__").glob(f"*.{what}")
    file.write_bytes(pickle.dumps(Touch()) + file.read_bytes())
    assert "damaged" in go(tmp_path)
    assert not (tmp_path / "owned").exists()


def foreign(path):
    os.chown(path, 12345, 12345)


def writable(path):
    path.chmod(0o666)


@pytest.mark.parametrize("what", ["nbi", "nbc"])
@pytest.mark.parametrize("change", [foreign, writable])
def test_a_file_of_another_user_or_writable_by_others_is_not_used(tmp_path, what, change):
    if change is foreign and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    go(tmp_path)
    (file,) = (tmp_path / "__pycache__").glob(f"*.{what}")
    change(file)
    go(tmp_path)
    (file,) = (tmp_path / "__pycache__").glob(f"*.{what}")
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (os.geteuid(), 0o644)


def test_no_file_is_left_that_others_can_write(tmp_path):
    (tmp_path / "kernel.py").write_text(f"import os\nos.umask(0)\n{KERNEL}")
    go(tmp_path)
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in (tmp_path / "__pycache__").glob("*.nb?")}
    assert modes == {".nbi": 0o644, ".nbc": 0o644}

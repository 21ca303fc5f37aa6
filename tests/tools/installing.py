"""What an installation needs of the checkout, and commands that see no other Python's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("fedsim", "scenarios", "pyproject.toml", "README.md", "LICENSE")


def run(*command: object, cwd: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

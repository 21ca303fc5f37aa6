"""What hidden cells of executed pages call: write a file, run commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = "from fedsim.cli import main; main()"


def write(name: str, text: str) -> None:
    """Write a file of the page into its working folder."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def commands(text: str) -> None:
    """Run each line, which starts with `fedsim`; show what it prints and raise if it fails."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            sys.stdout.write(output(line))


def output(line: str, folder: Path | None = None) -> str:
    """Return what a command prints."""
    program, _, arguments = line.strip().partition(" ")
    if program != "fedsim":
        raise ValueError(f"{line}: an sh block holds fedsim commands; use bash for what is only shown")
    words = f'"$PYTHON" -c "$PROGRAM" {arguments}'  # the shell sees quotes and variables as a reader's would
    added = {"PYTHON": sys.executable, "PROGRAM": PROGRAM, "COLUMNS": "88", "MPLBACKEND": "Agg", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", words], cwd=folder, capture_output=True, text=True, env={**os.environ, **added}, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{line}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout

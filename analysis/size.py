"""Lines and files of every package: `python -m analysis.size [REVISION]`; with a revision, before and after."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def sizes(revision: str | None) -> dict[str, tuple[int, int]]:
    """Return the lines and files of each package below `fedsim`; None: of the working tree."""
    listing = ["git", "ls-files"] if revision is None else ["git", "ls-tree", "-r", "--name-only", revision]
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name in _output([*listing, "--", "fedsim"]).splitlines():
        path = ROOT / name
        if not name.endswith(".py") or (revision is None and not path.is_file()):
            continue
        text = path.read_text() if revision is None else _output(["git", "show", f"{revision}:{name}"])
        package = "/".join(Path(name).parts[:-1])
        lines[package] += text.count("\n")
        files[package] += 1
    return {package: (lines[package], files[package]) for package in lines}


def _output(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main(revision: str | None = None) -> None:
    tables = [sizes(None)] if revision is None else [sizes(revision), sizes(None)]
    width = max(len(package) for table in tables for package in table)
    for package in [*sorted(set().union(*tables)), "total"]:
        cells = []
        for table in tables:
            rows = table.values() if package == "total" else [table.get(package, (0, 0))]
            cells.append("{:>8,} lines {:>4} files".format(*map(sum, zip(*rows, strict=True))))
        print(f"{package:<{width}} {'   '.join(cells)}")


if __name__ == "__main__":
    main(*sys.argv[1:2])

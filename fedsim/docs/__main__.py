"""`python -m fedsim.docs build --out DIR`: build the manual."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fedsim.docs import site_folder
from fedsim.docs.build import build, unexecuted
from fedsim.errors import FedsimError


def main() -> int:
    """Build the manual, and return the exit code."""
    parser = argparse.ArgumentParser("python -m fedsim.docs", description="Build the manual as a site.")
    command = parser.add_subparsers(required=True).add_parser("build", help="Write the site into a folder.")
    command.add_argument("--out", type=Path, default=site_folder(), help="The folder. Default: what fedsim docs opens.")
    command.add_argument("--jobs", type=int, default=2, help="Pages that are read at the same time.")
    given = parser.parse_args()
    try:
        seconds = build(given.out.resolve(), given.jobs)
    except FedsimError as error:
        sys.stderr.write(f"fedsim: {error}\n")
        return 1
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:5]
    sys.stdout.write(f"slowest  {', '.join(f'{name} {seconds[name]:.1f} s' for name in slowest)}\n")
    sys.stdout.writelines(f"not executed  {topic}: {', '.join(why)}\n" for topic, why in unexecuted().items())
    sys.stdout.write(f"manual  {given.out / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

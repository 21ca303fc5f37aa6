"""The `fedsim` command, and the only package that prints."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the `fedsim` command and exit the process."""
    try:
        os.getcwd()
    except OSError:  # checked before NumPy is imported: on Python 3.13 that import fails without a current folder
        sys.stderr.write("fedsim: the current folder no longer exists; change to another one\n")
        sys.exit(2)
    try:
        from fedsim.cli.terminal import safe_streams  # imported here to keep `import fedsim.cli` fast

        with safe_streams() as output:
            from fedsim.cli.app import call
            from fedsim.runtime.process import exit_process

            code = call(sys.argv[1:])
    except KeyboardInterrupt:  # during the imports
        sys.stderr.write("fedsim: interrupted\n")
        os._exit(130)  # half-imported libraries may fail in an ordinary exit
    exit_process(output.code(code))

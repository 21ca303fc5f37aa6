"""The command line, and the only place that prints: `fedsim run`, `fedsim list`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The `fedsim` command."""
    try:
        from fedsim.cli.terminal import careful  # here, so that importing fedsim.cli costs nothing

        with careful() as output:
            from fedsim.cli.app import call
            from fedsim.runtime.process import exit_process

            code = call(sys.argv[1:])
    except KeyboardInterrupt:  # while the libraries load
        sys.stderr.write("fedsim: interrupted\n")
        os._exit(130)  # nothing has begun, and half-loaded libraries may not even know how to end
    exit_process(output.code(code))

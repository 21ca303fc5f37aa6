"""The command line, and the only place that prints: `fedsim run`, `fedsim list`."""

from __future__ import annotations

import sys


def main() -> None:
    """The `fedsim` command."""
    from fedsim.cli.app import call  # here, so that importing fedsim.cli costs nothing
    from fedsim.cli.streams import patient_output
    from fedsim.runtime.leaving import leave

    patient_output()
    leave(call(sys.argv[1:]))

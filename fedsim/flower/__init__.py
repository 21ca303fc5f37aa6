"""Flower apps, unmodified, on the virtual clock: `fs.flower.run("path/to/app", nodes=100, network=..., devices=...)`.

app             the app's folder, nodes, network and devices; an ordinary result
                `App` is the same as a value, for scenario files
work            how much a ClientApp computes: examples, flops, declared, measured
grid            Flower's Grid: messages are visits, and time passes while the ServerApp waits
rows            rows of `rounds`, and the tables of a result
messages        bytes by Flower's object protocol, copies, a codec
nodes           calls of a ClientApp                    runtimes       where they are executed
loading         an app through its pyproject            recorded       answers in checkpoints
virtual_time    `time.*` of a ServerApp's thread        process_state  generators, modules, environment
flwr_names      names of flwr that have moved           installed      whether flwr is there
"""

from __future__ import annotations

from fedsim.flower.app import App, run
from fedsim.flower.processes import Processes
from fedsim.flower.work import declared, examples, flops, measured

__all__ = ["App", "Processes", "declared", "examples", "flops", "measured", "run"]

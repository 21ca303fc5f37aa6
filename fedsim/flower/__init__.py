"""Flower apps, unmodified, on the virtual clock: `fs.flower.run("path/to/app", nodes=100, network=..., devices=...)`.

app             an app with its nodes, network and devices; `run`
execution       from an app to an ordinary result
work            how much a ClientApp computes: examples, flops, declared, measured
grid            Flower's Grid: what a ServerApp sends and pulls, and how it waits
in_flight       visits in flight                       superlink      replies to pull, error replies
sent            a message and its reply                rows           rows of `rounds`, and a result's tables
messages        bytes by Flower's object protocol, copies, a codec
nodes           calls of a ClientApp                   runtimes       where they are executed
node_ids        ids without a table                    recorded       answers in checkpoints
loading         an app through its pyproject           legacy         `server_fn` and workflows, without threads
virtual_time    `time.*` of a ServerApp's thread       process_state  generators, modules, environment
flwr_names      names of flwr that have moved          installed      whether flwr is there
"""

from __future__ import annotations

from fedsim.flower.app import App, run
from fedsim.flower.processes import Processes
from fedsim.flower.work import declared, examples, flops, measured

__all__ = ["App", "Processes", "declared", "examples", "flops", "measured", "run"]

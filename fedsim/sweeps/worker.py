"""A worker process of a sweep: reads runs to do as lines of JSON, answers with reports, ends with its input.

It is a plain program, so that a script that calls `fs.sweep` is never run a second time by its own workers.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path

from fedsim.errors import InvalidInput
from fedsim.results.sealed import to_json
from fedsim.runtime.process_exit import leave
from fedsim.scenario_file import load_source
from fedsim.sweeps.plan import Order
from fedsim.sweeps.work import fail, perform

COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fedsim.sweeps.worker import main; main()"


def main() -> None:
    """The worker's whole life."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a scenario prints must not end up among the answers
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    first = json.loads(sys.stdin.buffer.readline() or "null")
    if first is None:
        return
    orders: queue.Queue[dict[str, object] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(orders, stop), daemon=True).start()
    out, refused = Path(first["out"]), ""
    try:
        file = load_source(Path(first["file"]), first["source"], first["folder"], first["modules"])
    except InvalidInput as error:  # a neighbour of the file has changed since the sweep was planned
        refused = str(error)
    while (given := orders.get()) is not None:
        order = Order(**given)  # type: ignore[arg-type]
        if refused:
            report = fail(out / order.run, order, InvalidInput.__name__, refused, f"{refused}\n")
        else:
            report = perform(file, order, out, first["threads"], stop)
        answers.write(json.dumps(json.loads(to_json(report))).encode() + b"\n")
        answers.flush()
    leave(0)


def _listen(orders: queue.Queue[dict[str, object] | None], stop: threading.Event) -> None:
    """Beside the run: if the sweep ends, or dies, the run finishes its round, keeps a checkpoint and stops."""
    for line in sys.stdin.buffer:
        orders.put(json.loads(line))
    stop.set()
    orders.put(None)

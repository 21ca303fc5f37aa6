"""Apps in Flower's earlier form, without its threads: `server_fn`, and workflows with a client manager.

Flower gives a `server_fn` app a Server, which sends from one thread per client, and every client manager a thread
that registers nodes. Threads wait in real time and in no fixed order. So the strategy runs in Flower's
DefaultWorkflow, which sends the messages of a round together, and a client manager registers nodes when it is asked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsim.errors import InvalidInput
from fedsim.flower import flwr_names as flwr

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.server import ClientManager, Server, ServerConfig
    from flwr.server.strategy import Strategy

    from fedsim.flower.grid import Grid

REGISTER_S = 5.0  # between two registrations of nodes by Flower's thread


@contextmanager
def without_threads(context: Context) -> Iterator[None]:
    """Replace what starts threads in Flower's ServerApp and workflow; afterwards they are as before."""
    app = sys.modules[flwr.ServerApp.__module__]
    workflow = import_module("flwr.server.workflow.default_workflows")

    def start_grid(
        *, grid: Grid, server: Server | None = None, config: ServerConfig | None = None,
        strategy: Strategy | None = None, client_manager: ClientManager | None = None,
    ) -> None:  # fmt: skip
        """Run a strategy as Flower's `start_grid` does."""
        names = import_module("flwr.server")
        if server is not None:
            if type(server) is not names.Server:
                raise InvalidInput(
                    f"this ServerApp brings its own Server, {type(server).__name__}, which would send from several "
                    "threads in no fixed order; give a strategy instead, or write @app.main()"
                )
            strategy, client_manager = server.strategy, server.client_manager()
        legacy = names.LegacyContext(context=context, config=config, strategy=strategy, client_manager=client_manager)
        timed = _WithTimeout(grid, legacy.config.round_timeout)
        workflow.DefaultWorkflow(
            lambda _, context: workflow.default_fit_workflow(timed, context),
            lambda _, context: workflow.default_evaluate_workflow(timed, context),
        )(grid, legacy)

    replaced = [(app, "start_grid", start_grid), (workflow, "start_update_client_manager_thread", _register_when_asked)]
    before = [getattr(module, name) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(replaced, before, strict=True):
            setattr(module, name, value)


@dataclass
class _WithTimeout:
    """A grid whose messages expire after the rounds' timeout, as those of a Server do."""

    grid: Grid
    timeout_s: float | None

    def send_and_receive(self, messages: list[Any]) -> list[Any]:
        if self.timeout_s is not None:
            for message in messages:
                message.metadata.ttl = self.timeout_s
        return self.grid.send_and_receive(messages)


def _register_when_asked(grid: Grid, client_manager: ClientManager) -> tuple[Any, threading.Event, threading.Event]:
    """Have a client manager register the nodes online when it is asked for nodes; it waits in virtual time."""
    stop, done = threading.Event(), threading.Event()
    stop.set()  # so that Flower's function returns when it has wrapped the manager's methods

    def wait_for(num_clients: int, timeout: float = 86_400) -> bool:
        until_s = grid.clock.now_s + timeout
        while client_manager.num_available() < num_clients:
            if grid.clock.now_s >= until_s:
                return False
            grid.sleep(REGISTER_S)
        return True

    client_manager.wait_for = wait_for
    import_module("flwr.server.compat.app_utils")._update_client_manager(grid, client_manager, stop, done)
    ended = threading.Thread()
    ended.start()
    return ended, stop, done

"""Calls of a ClientApp: one function of its message, the node's state and a key, wherever it runs."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fedsim.flower import flwr_names as flwr
from fedsim.flower.messages import copied, copied_content
from fedsim.flower.process_state import seeded
from fedsim.flower.virtual_time import ClientTime, use_timekeeper
from fedsim.flower.work import FLOPS, SECONDS

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.clientapp import ClientApp

_GENERATORS = threading.RLock()  # `random` and its like belong to the process, so its threads take turns


@dataclass
class Call:
    """A message for a node."""

    number: int  # of the message, from 1
    node_id: int
    node_config: dict[str, Any]
    sent_s: float
    message: Message
    state: Any  # the RecordDict that the node has kept


@dataclass
class NodeAnswer:
    """What came of a call; `state` is what the node keeps if the visit gets as far as the end of computing."""

    content: RecordDict = None
    error: tuple[int, str] | None = None  # code and reason
    state: Any = None
    slept_s: float = 0.0
    counted: float = 0.0
    failed: str = ""  # the last line of the exception that the app raised


class ClientCaller:
    """Calls one ClientApp."""

    def __init__(self, client_app: ClientApp, run_id: int, run_config: dict[str, Any], seed: int, counts: str) -> None:
        self.client_app, self.run_id, self.run_config = client_app, run_id, run_config
        self.seed, self.counts = seed, counts

    def context(self, call: Call, state: Any) -> Any:
        """Return the node's context."""
        return flwr.Context(
            run_id=self.run_id, node_id=call.node_id, node_config=dict(call.node_config), state=state,
            run_config=dict(self.run_config),
        )  # fmt: skip

    def __call__(self, call: Call) -> NodeAnswer:
        """Call the app with copies, so that nothing it changes reaches another node or the server."""
        message = copied(call.message)
        state = flwr.RecordDict() if call.state is None else copied_content(call.state)
        context, clock = self.context(call, state), ClientTime(call.sent_s)
        answer = NodeAnswer()
        with (
            _GENERATORS,
            seeded("client", self.seed, call.number),
            use_timekeeper(clock),
            _counting(self.counts) as counted,
        ):
            try:
                reply = self.client_app(message, context)
                if not isinstance(reply, flwr.Message):
                    raise TypeError(f"the ClientApp returned {type(reply).__name__}; return a Message")
            except (Exception, SystemExit) as error:
                answer.failed = _last_line(error)
                reason = f"{type(error)}:<'{error}'>"
                answer.error = flwr.ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason
                answer.state = call.state
                answer.slept_s = clock.slept_s
                return answer
        answer.counted, answer.slept_s, answer.state = counted.value(), clock.slept_s, copied_content(context.state)
        if reply.has_error():
            answer.error = reply.error.code, reply.error.reason or ""
        else:
            answer.content = copied_content(reply.content)
        return answer


class _Count:
    def __init__(self, value: Any) -> None:
        self.value = value


@contextmanager
def _counting(counts: str) -> Iterator[_Count]:
    """Count floating-point operations or processor seconds of this thread; `value()` gives them after the call."""
    if counts == FLOPS:
        counter = import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
        with counter:
            yield _Count(lambda: float(counter.get_total_flops()))
    elif counts == SECONDS:
        began = time.thread_time()
        yield _Count(lambda: time.thread_time() - began)
    else:
        yield _Count(lambda: 0.0)


def _last_line(error: BaseException) -> str:
    """Return the exception and the place in the app that raised it."""
    text = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else text


class Executor(Protocol):
    """What executes calls."""

    eager: bool  # whether a call starts when its message is sent

    def submit(self, call: Call) -> Any: ...
    def result(self, submitted: Any) -> NodeAnswer: ...


class InlineNodes:
    """Calls in this thread, when their download has ended."""

    eager = False

    def __init__(self, caller: ClientCaller) -> None:
        self.caller = caller

    def submit(self, call: Call) -> Call:
        return call

    def result(self, submitted: Call) -> NodeAnswer:
        return self.caller(submitted)

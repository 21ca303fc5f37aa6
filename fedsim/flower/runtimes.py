"""Where ClientApps are executed: in this thread, on threads, in processes, on Ray. The results are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedsim.flower.nodes import ClientCaller, Inline

if TYPE_CHECKING:
    from fedsim.flower.loading import Description


@contextmanager
def executor_of(runtime: Any, caller: ClientCaller, app: Any, description: Description) -> Iterator[Any]:
    yield Inline(caller)

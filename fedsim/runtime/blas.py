"""BLAS held to one thread, so that its bits do not depend on how many cores there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold every BLAS that has been loaded to one thread, the one inside torch included."""
    with ExitStack() as held:
        if sys.modules.get("torch") is not None:
            from fedsim.problems.torch_maths import one_thread

            held.enter_context(one_thread)  # before OpenMP's number changes, which torch takes for the user's
        held.enter_context(_libraries(len(sys.modules)).limit(limits=1))
        yield


def blas_kernels() -> list[str]:
    """Return the names of the kernels that every loaded BLAS has chosen for this CPU, such as Haswell."""
    loaded = [library for library in _libraries(len(sys.modules)).info() if library["user_api"] == "blas"]
    return sorted({str(library.get("architecture", library["internal_api"])) for library in loaded})


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Those that are loaded; looked for again when so many modules are no longer all."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

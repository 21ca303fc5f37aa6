"""BLAS held to one thread, so that its bits do not depend on how many cores there are."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any


def one_blas_thread() -> Any:
    """A context in which every BLAS that has been loaded computes on one thread."""
    return _libraries(len(sys.modules)).limit(limits=1)


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Those that are loaded; looked for again when so many modules are no longer all."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

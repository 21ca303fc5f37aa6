"""Decorators of the loops: inner functions become part of a unit, which Python calls (`kernels.compiler`).

`_nrt=False` is an option of Numba that is not documented: arrays are not reference-counted. With `forceinline` it makes
a loop over records 17 times as fast. Such functions can neither allocate arrays nor return them; a NamedTuple of arrays
they can. Only speed depends on both options.
"""

from __future__ import annotations

from typing import Any

from fedsim.kernels.cache import cached
from fedsim.kernels.compiler import InnerDispatcher, KernelDispatcher, dispatched_by

CALLED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "forceinline": False}
INNER = CALLED | {"forceinline": True}

inner: Any = dispatched_by(InnerDispatcher, **INNER)
called: Any = dispatched_by(InnerDispatcher, **CALLED)  # for what is long or has many callers
unit: Any = cached(dispatched_by(KernelDispatcher, _nrt=False, no_cfunc_wrapper=True))

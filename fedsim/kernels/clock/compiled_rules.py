"""Compile `fedsim.rules`: importing this module lets kernels call every rule under its own name.

For Python a rule is unchanged; the compiler uses an inner function (`kernels.compiler`) in its place. So both
clocks write `closing.closing_s(...)`, rules may call rules, and no rule imports Numba. A kernel that calls rules
imports this module and the modules of the rules: its cache then follows these files (`code_digest`).

Numba's `register_jitable` would do the same, but optimises every rule by itself before it is inlined: half of the time
that a clock takes to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba.core.registry import cpu_target
from numba.core.types import Dispatcher

from fedsim.kernels.compiler import inline
from fedsim.rules import availability, closing, draws, visits

RULES = (draws, visits, closing, availability)


def rules_of(module: Any) -> list[Callable[..., Any]]:
    """Return the functions that a module of rules defines, in its order."""
    return [f for f in vars(module).values() if isinstance(f, FunctionType) and f.__module__ == module.__name__]


COMPILED = {rule: inline(rule) for module in RULES for rule in rules_of(module)}
for _rule, _inner in COMPILED.items():
    cpu_target.typing_context.insert_global(_rule, Dispatcher(_inner))

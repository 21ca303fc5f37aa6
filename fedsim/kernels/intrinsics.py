# mypy: disable-error-code="import-untyped"
"""The one door to LLVM, for the few kernels that write instructions themselves.

Why it is there: Numba has no public way to ask for a vector of lanes, a gather without a bounds check or the bits of a
float, and the compiler finds none of them by itself in these loops.
What stands behind the door (`llvmlite.ir`, `numba.core.cgutils` and the arguments of an intrinsic's code generator) is
not promised to stay; `tests/package/test_private_doors.py` notices when it does not.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.base import BaseContext as Context
from numba.core.datamodel.models import PrimitiveModel
from numba.core.types import Type
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, overload, register_model

Builder, Value = ir.IRBuilder, ir.Value

__all__ = [
    "Builder", "Context", "PrimitiveModel", "Signature", "Type", "Typing", "Value", "cgutils", "intrinsic", "ir",
    "overload", "register_model", "types",
]  # fmt: skip

"""Two kinds of compiled functions: kernels, which Python calls, and inner functions, which only kernels call.

Numba optimises every function separately, with all its callees, and again inside each caller; it compiles a version for
each constant argument and a wrapper for Python for each version. For a program of a hundred small functions this takes
a minute and a half. Here an inner function stays unoptimised until a kernel that calls it is optimised as one unit,
which takes a fifth of the time and gives LLVM a better view. Only kernels are cached on disk.

The parts of Numba that this uses (dispatchers, code libraries) may change;
`tests/package/test_private_doors.py` fails when they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.types.misc import unliteral


class UnoptimisedLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of one inner function, as Numba lowered it."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return CodegenWithoutEnvironments(self._codegen)


class LinkedLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel and of all its callees."""

    def finalize(self) -> None:
        direct: list[Any] = self._linking_libraries
        self._linking_libraries: list[Any] = []
        self._add(direct)
        self._own = {f.name for f in self._final_module.functions if not f.is_declaration}
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:  # internal: LLVM drops arguments that a function does not use
            if not function.is_declaration and function.name not in self._own:
                function.linkage = "internal"
        super()._optimize_final_module()

    def _add(self, called: list[Any]) -> None:
        """Add libraries, each before its callees: LLVM's linker takes only symbols that are already referenced."""
        for library in called:
            if library not in self._linking_libraries:
                self._linking_libraries.append(library)
                if isinstance(library, UnoptimisedLibrary):
                    self._add(library._linking_libraries)


class CodegenWithoutEnvironments:
    """A code generator for inner functions, which have no Python globals at run time."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def set_env(self, name: str, environment: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class KernelDispatcher(CPUDispatcher):  # type: ignore[misc]
    """A function that Python calls."""

    def compile(self, sig: Any) -> Any:
        with library_class(self.targetctx, LinkedLibrary):
            return super().compile(sig)


class InnerDispatcher(CPUDispatcher):  # type: ignore[misc]
    """A function that kernels call, compiled once for each tuple of argument types."""

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise TypeError(f"{self.py_func.__qualname__} has no entry for Python; call it in a kernel")

    def get_call_template(self, args: Sequence[Any], kws: dict[str, Any]) -> Any:
        plain = {name: unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template([unliteral(kind) for kind in args], plain)

    def compile(self, sig: Any) -> Any:
        with library_class(self.targetctx, UnoptimisedLibrary):
            return super().compile(sig)


@contextmanager
def library_class(context: Any, kind: type) -> Iterator[None]:
    """Make Numba put code into libraries of this class inside the block."""
    with global_compiler_lock:
        maker = context.codegen()
        before, maker._library_class = maker._library_class, kind
        try:
            yield
        finally:
            maker._library_class = before


def dispatched_by(kind: type, **options: bool) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes functions dispatchers of this class."""
    fixed = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}

    def decorate(function: Callable[..., Any]) -> Any:
        return kind(function, locals={}, targetoptions=fixed | options)

    return decorate


jit = dispatched_by(InnerDispatcher, no_cpython_wrapper=True, no_cfunc_wrapper=True)
inline = dispatched_by(InnerDispatcher, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)

# mypy: disable-error-code="import-untyped"
"""Functions that only other kernels call: typed one by one, optimised once, together with the kernel that Python calls.

Numba optimises every function by itself, with all that it calls, and again inside each of its callers; it makes a
version for each constant that an argument is seen with, and a door for Python to every one. For a program of a hundred
small functions that call one another that is a minute and a half of work. Here a function is left as it was lowered
until a kernel of `cache.jit` that calls it is optimised as a whole, in a fifth of the time and with a better view. Only
that kernel is kept on the disk.

What is used of Numba for it (dispatchers, code libraries) is not promised to stay;
`tests/package/test_private_doors.py` notices when it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.types.misc import unliteral


class Unfinished(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of one function, as it was lowered."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return WithoutEnvironments(self._codegen)


class Whole(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel and of all that it calls."""

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
        """These, each followed by those that it calls: LLVM's linker takes nothing that nobody has asked for yet."""
        for library in called:
            if library not in self._linking_libraries:
                self._linking_libraries.append(library)
                if isinstance(library, Unfinished):
                    self._add(library._linking_libraries)


class WithoutEnvironments:
    """A code generator for functions that never run by themselves, and so have no globals of Python's to look at."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def set_env(self, name: str, environment: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A function that Python calls."""

    def compile(self, sig: Any) -> Any:
        with libraries(self.targetctx, Whole):
            return super().compile(sig)


class Inner(CPUDispatcher):  # type: ignore[misc]
    """A function for other kernels, one version for each row of types."""

    def get_call_template(self, args: Sequence[Any], kws: dict[str, Any]) -> Any:
        plain = {name: unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template([unliteral(kind) for kind in args], plain)

    def compile(self, sig: Any) -> Any:
        with libraries(self.targetctx, Unfinished):
            return super().compile(sig)


@contextmanager
def libraries(context: Any, kind: type) -> Iterator[None]:
    """Inside, code goes into libraries of this kind."""
    with global_compiler_lock:
        maker = context.codegen()
        before, maker._library_class = maker._library_class, kind
        try:
            yield
        finally:
            maker._library_class = before


def compiled(kind: type, **options: bool) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that makes functions dispatchers of this kind."""
    fixed = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}

    def decorate(function: Callable[..., Any]) -> Any:
        return kind(function, locals={}, targetoptions=fixed | options)

    return decorate


jit = compiled(Inner, no_cpython_wrapper=True, no_cfunc_wrapper=True)
inline = compiled(Inner, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)

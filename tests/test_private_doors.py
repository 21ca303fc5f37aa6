"""What is used of other libraries beyond their public names: each in one place, and noticed here when it changes."""

import ast
from pathlib import Path

import numpy as np
import simpy

import fedsim as fs
from fedsim.kernels import cache, elementary, inner
from fedsim.old_engine.clock import LAST, Clock
from fedsim.results.environment import cpu_features

PACKAGE = Path(fs.__file__).parent
DOORS = {  # by the words of an import or an attribute: the one file that may say them
    "ir": "kernels/llvm.py",  # of llvmlite; its `binding` is public
    "_eid": "old_engine/clock.py",
    "_library_class": "kernels/inner.py",  # of Numba's code generator
    "_core": "results/environment.py",
}


def said(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("fedsim"):
            yield from node.module.split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))


def test_each_private_door_is_in_one_file():
    for path in PACKAGE.rglob("*.py"):
        words = set(said(ast.parse(path.read_text())))
        for word, home in DOORS.items():
            assert word not in words or str(path.relative_to(PACKAGE)) == home, f"{path}: {word}"


def test_simpy_takes_events_at_the_very_instant_in_order_of_priority_then_of_coming():
    clock, seen = Clock(), []
    third = 0.1 + 0.2  # timeout(third - now) need not land there
    clock.at(0.1, lambda moment: seen.append(("first", clock.now)))
    clock.at(third, lambda moment: seen.append(("last", clock.now)), LAST)
    clock.at(third, lambda moment: seen.append(("b", clock.now)), 1)
    clock.at(third, lambda moment: seen.append(("c", clock.now)), 1)
    clock.at(third, lambda moment: seen.append(("a", clock.now)))
    clock.run_to(third)
    assert seen == [("first", 0.1), ("a", third), ("b", third), ("c", third), ("last", third)]
    assert isinstance(clock, simpy.Environment)


def test_a_clock_is_still_simpys_own():
    """Its public timeouts and our instants share one queue."""
    clock, seen = Clock(), []
    clock.timeout(2.0).callbacks.append(lambda event: seen.append("timeout"))
    clock.at(1.0, lambda moment: seen.append("instant"))
    clock.run()
    assert seen == ["instant", "timeout"]


def test_llvm_reinterprets_bits():
    @elementary.jit
    def there_and_back(word):
        return elementary.as_int(elementary.as_float(word))

    for word in (np.int64(0x3FF8000000000000), np.int32(0x3FC00000)):
        assert there_and_back(word) == word


def test_numpy_says_what_the_processor_can_do():
    found = cpu_features()
    assert found
    assert all(isinstance(feature, str) for feature in found)


def test_numba_leaves_inner_functions_to_the_kernel_that_calls_them():
    @inner.jit
    def least(a, b):
        return a if a < b else b

    @inner.jit
    def middle(a, b, c):
        return max(least(a, b), least(max(a, b), c))

    @cache.jit
    def kernel(a):
        return middle(a, 5, 3) + middle(a, 2, 7)

    assert [kernel(k) for k in (1, 4, 9)] == [3 + 2, 4 + 4, 5 + 7]
    assert len(least.overloads) == len(middle.overloads) == 1  # not one for each constant
    assert isinstance(next(iter(middle.overloads.values())).library, inner.Unfinished)
    assert isinstance(next(iter(kernel.overloads.values())).library, inner.Whole)


def test_numpy_in_an_inner_function_is_there_for_other_kernels_too():
    @inner.jit
    def ordered(values):
        return np.sort(values)

    @cache.jit
    def smallest(values):
        return ordered(values)[0]

    @cache.jit
    def largest(values):
        return np.sort(values)[-1]

    values = np.array([3.5, -1.0, 2.0])
    assert (smallest(values), largest(values)) == (-1.0, 3.5)

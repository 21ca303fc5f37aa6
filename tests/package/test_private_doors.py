"""What is used of other libraries beyond their public names: each in one place, and noticed here when it changes."""

import ast
from pathlib import Path

import numpy as np
import simpy

import fedsim as fs
from fedsim.engine.clock.simpy.links import Instant
from fedsim.kernels import cache, compiler, intrinsics
from fedsim.results.environment import cpu_features

PACKAGE = Path(fs.__file__).parent
DOORS = {  # by the words of an import or an attribute: the one file that may say them; None: no file
    "ir": "kernels/intrinsics.py",  # of llvmlite; its `binding` is public
    "_eid": None,  # of SimPy; `links.Instant` needs its public names alone
    "_library_class": "kernels/compiler.py",  # of Numba's code generator
    "_core": "results/environment.py",
}


def names_in(tree):
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
        words = set(names_in(ast.parse(path.read_text())))
        for word, home in DOORS.items():
            assert word not in words or str(path.relative_to(PACKAGE)) == home, f"{path}: {word}"


def note(env, seen, what, time_s, rank):
    Instant(env, time_s, rank).callbacks.append(lambda _: seen.append((what, env.now)))


def test_simpy_handles_events_at_the_exact_instant_in_order_of_rank():
    env, seen = simpy.Environment(), []
    third = 0.1 + 0.2  # a delay from 0.1 need not lead there
    env.timeout(0.1).callbacks.append(lambda _: [note(env, seen, rank, third, rank) for rank in (9, 3, 10**15, 7)])
    note(env, seen, 5, third, 5)
    note(env, seen, "first", 0.1, 2)
    env.run()
    assert seen == [("first", 0.1), *((rank, third) for rank in (3, 5, 7, 9, 10**15))]


def test_an_instant_is_exact_where_no_delay_leads_to_it():
    """SimPy adds a delay to now; for some pairs of times no delay gives the second."""
    draw, hops = np.random.default_rng(1), 0
    for now, then in zip(draw.uniform(1, 2, 2000).tolist(), draw.uniform(4, 8, 2000).tolist(), strict=True):
        hops += now + (then - now) != then
        env, seen = simpy.Environment(initial_time=now), []
        note(env, seen, "there", then, 2)
        env.run()
        assert seen == [("there", then)]
    assert hops > 50


def test_all_consequences_of_an_event_are_done_before_the_next_event_of_that_instant():
    """SimPy's own events have priorities 0 and 1, and ranks are larger."""
    env, seen = simpy.Environment(), []

    def process():
        yield Instant(env, 1.0, 2)
        yield env.event().succeed()
        yield env.timeout(0.0)
        seen.append("consequence")

    env.process(process())
    note(env, seen, "next event", 1.0, 3)
    env.run()
    assert seen == ["consequence", ("next event", 1.0)]
    assert simpy.events.URGENT < simpy.events.NORMAL < 2


def test_instants_and_simpys_own_timeouts_share_one_queue():
    env, seen = simpy.Environment(), []
    env.timeout(2.0).callbacks.append(lambda event: seen.append("timeout"))
    Instant(env, 1.0, 2).callbacks.append(lambda event: seen.append("instant"))
    env.run()
    assert seen == ["instant", "timeout"]


def test_llvm_reinterprets_bits():
    @cache.jit
    def there_and_back(word):
        return intrinsics.as_int(intrinsics.as_float(word))

    for word in (np.int64(0x3FF8000000000000), np.int32(0x3FC00000)):
        assert there_and_back(word) == word


def test_numpy_says_what_the_processor_can_do():
    found = cpu_features()
    assert found
    assert all(isinstance(feature, str) for feature in found)


def test_numba_leaves_inner_functions_to_the_kernel_that_calls_them():
    @compiler.jit
    def least(a, b):
        return a if a < b else b

    @compiler.jit
    def middle(a, b, c):
        return max(least(a, b), least(max(a, b), c))

    @cache.jit
    def kernel(a):
        return middle(a, 5, 3) + middle(a, 2, 7)

    assert [kernel(k) for k in (1, 4, 9)] == [3 + 2, 4 + 4, 5 + 7]
    assert len(least.overloads) == len(middle.overloads) == 1  # not one for each constant
    assert isinstance(next(iter(middle.overloads.values())).library, compiler.UnoptimisedLibrary)
    assert isinstance(next(iter(kernel.overloads.values())).library, compiler.LinkedLibrary)


def test_numpy_in_an_inner_function_is_there_for_other_kernels_too():
    @compiler.jit
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

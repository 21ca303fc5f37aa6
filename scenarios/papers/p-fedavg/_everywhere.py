"""A claim on a curve: it has to hold at every round that was recorded."""

from collections.abc import Mapping

from fedsim.reproduce import Outcome, every


def everywhere(tests: Mapping[str, Outcome]) -> Outcome:
    """Return the conjunction, shown by the first test that decides it and the number of tests by verdict."""
    verdict = every(tests).verdict
    deciding = {name: one for name, one in tests.items() if one.verdict == verdict}
    name, first = next(iter(deciding.items()))
    counts = {
        v: sum(one.verdict == v for one in tests.values()) for v in ("held", "not held", "inconclusive", "not run")
    }
    shown = ", ".join(f"{v} {number}" for v, number in counts.items() if number)
    held = Outcome(**{**vars(first), "ours": f"{name}: {first.ours}"})
    return held.because(f"Of {len(tests)} comparisons: {shown}.")

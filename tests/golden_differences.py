"""Compare the golden scenarios of two versions: `python tests/golden_differences.py OLD_CHECKOUT [part of a name ...]`.

Each version runs its own `tests/golden_scenarios.py` in its own process. A line per scenario and clock says what differs:
nothing, times by at most 1e-12, the order of rows, or which columns, from which row on.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent.parent
FRAMES = ("rounds", "clients", "metrics", "events")
RUN = """
import pickle, sys, inspect
sys.path.insert(0, "tests")
import fedsim as fs
from golden_scenarios import SCENARIOS
found = {}
clocks = ("simpy", "compiled") if "clock" in inspect.signature(fs.run).parameters else (None,)
for name, scenario in SCENARIOS.items():
    if not any(part in name for part in sys.argv[2:] or [""]):
        continue
    for clock in clocks:
        try:
            result = fs.run(scenario, runtime=fs.Inline(threads=1), **({"clock": clock} if clock else {}))
        except fs.errors.InvalidInput as error:
            found[name, clock] = str(error)
            continue
        frames = {n: getattr(result, n) for n in ("rounds", "clients", "metrics", "events")}
        found[name, clock] = result.samples, frames, result.manifest.get("clock"), result.stopped_by
pickle.dump(found, open(sys.argv[1], "wb"))
"""


def results(checkout: Path, parts: list[str]) -> dict[Any, Any]:
    """Return the results of every scenario in a checkout."""
    with tempfile.NamedTemporaryFile() as file:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_CORETYPE": "Haswell"}
        subprocess.run([sys.executable, "-c", RUN, file.name, *parts], cwd=checkout, env=environment, check=True)
        return dict(pickle.loads(Path(file.name).read_bytes()))


def difference(name: str, old: Any, new: Any) -> str:
    """Return what differs between two frames, or nothing."""
    if old is None or new is None:
        return "" if old is new else f"{name}: one has none"
    columns = [c for c in old.columns if c in new.columns]
    if len(old) != len(new):
        return f"{name}: {len(old)} rows, {len(new)} rows"
    if old[columns].equals(new[columns]):
        return ""
    found = _columns(old, new, columns)
    if name == "events" and found:
        keys = ["replica", "round", "client", "event", "bits"]
        again = _columns(*(f.sort_values(keys, kind="stable").reset_index(drop=True) for f in (old, new)), columns)
        if not any("!" in text for text in again):
            return f"{name}: order of rows" + (", " + ", ".join(again) if again else "")
    return f"{name}: " + ", ".join(found)


def _columns(old: Any, new: Any, columns: list[str]) -> list[str]:
    out = []
    for column in columns:
        a, b = old[column], new[column]
        if a.equals(b):
            continue
        if column.endswith("_s") and np.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True):
            out.append(f"{column} within 1e-12")
        else:
            at = int(np.flatnonzero(~((a == b) | (a.isna() & b.isna())))[0])
            out.append(f"{column} ! row {at}: {a[at]} {b[at]}")
    return out


def main() -> None:
    old, new = results(Path(sys.argv[1]), sys.argv[2:]), results(HERE, sys.argv[2:])
    for (name, clock), found in new.items():
        before = old.get((name, None))
        if isinstance(found, str) or before is None or isinstance(before, str):
            print(f"{name} | {clock} | not served: {found if isinstance(found, str) else before}")
            continue
        texts = [difference(f, before[1][f], found[1][f]) for f in FRAMES]
        if before[0].shape != found[0].shape or not np.array_equal(before[0], found[0], equal_nan=True):
            texts.insert(0, "samples !")
        if before[3] != found[3]:
            texts.insert(0, "stopped_by !")
        path = found[2]["path"] if found[2] else ""
        print(f"{name} | {clock} {path} | {'; '.join(t for t in texts if t) or 'equal bits'}")


if __name__ == "__main__":
    main()

"""Compare the golden scenarios of two versions: `python tests/golden/golden_differences.py OLD_CHECKOUT [part of a name]`.

Each version runs its own `golden_scenarios.py` in its own process, the new one on SimPy and on every path that can
serve. A line per scenario says which ran, and what differs from the old version: nothing, times by at most 1e-12, or what
a named rule changed. A rule is named only if it accounts for all of the difference, which is checked: without latency, or
with a place for every client, no other difference may be left. The exit status is 1 if a difference has no reason.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[2]
FRAMES = ("rounds", "clients", "metrics", "events")
LATENCY, PLACES = (r"latency_s=[\d.]+", "latency_s=0.0"), (r"buffered\(2, of=4", "buffered(2, of=6")
VARIANTS = {  # what else both versions run, and the reason if nothing else differs there
    "latency rule": [LATENCY],
    "keys of free places": [PLACES],
    "latency rule, keys of free places": [LATENCY, PLACES],
}
TIMES, ORDER = "times to 1e-12", "order of rows in events"
ASYNCHRONOUS = "opened_s, downlink_bits and events of asynchronous rounds"
FROM_CLOUD = "round of 'from cloud'"
GOSSIP = "events of gossip"
REASONS = {
    TIMES: "the latency is added last: (start + transfer) + latency; at latency 0 equal",
    ORDER: "events are derived from blocks: by replica, time, round, visit, kind, client",
    ASYNCHRONOUS: "a visit counts in the round in which it ends, with its download; a round opens when its first visit "
    "started; of visits in flight at the end only the start is noted",
    FROM_CLOUD: "for every edge the round before which the model came",
    GOSSIP: "'upload' and 'drop' are when the site ends its visit; what reaches a site after its round is no 'hear'",
    "latency rule": "a message shares links until its last bit has left, and the latency follows; at latency 0 equal",
    "keys of free places": "a free place is drawn with the number of the draw as key; with a place for every client equal",
}
RUN = """
import pickle, re, sys, types, warnings
from pathlib import Path
warnings.simplefilter("ignore")
out, edits, parts = pickle.loads(bytes.fromhex(sys.argv[1]))
sys.path.insert(0, "tests")
import fedsim as fs
file = next(Path("tests").rglob("golden_scenarios.py")).resolve()  # in tests/ itself until 0.3.0
text = file.read_text()
for pattern, instead in edits:
    text = re.sub(pattern, instead, text)
golden = sys.modules["golden_scenarios"] = types.ModuleType("golden_scenarios")
golden.__file__ = str(file)
exec(compile(text, str(file), "exec"), golden.__dict__)
found = {}
for name, scenario in golden.SCENARIOS.items():
    if not any(part in name for part in parts):
        continue
    for clock in getattr(golden, "CLOCKS", {"old": None}):
        if clock == "old":
            result = fs.run(scenario, runtime=fs.Inline(threads=1))
        else:
            result = golden.forced(scenario, clock)
        if result is not None:
            frames = {n: getattr(result, n) for n in ("rounds", "clients", "metrics", "events")}
            found.setdefault(name, {})[clock] = result.samples, frames, result.stopped_by
Path(out).write_bytes(pickle.dumps(found))
"""


def results(checkout: Path, edits: list[tuple[str, str]], parts: list[str]) -> dict[str, Any]:
    """Return the results of every scenario in a checkout, by clock, after these edits of their file."""
    with tempfile.NamedTemporaryFile() as file:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_CORETYPE": "Haswell"}
        asked = pickle.dumps((file.name, edits, parts or [""])).hex()
        subprocess.run([sys.executable, "-c", RUN, asked], cwd=checkout, env=environment, check=True)
        return dict(pickle.loads(Path(file.name).read_bytes()))


def differences(old: Any, new: Any, kind: str) -> list[str]:
    """Return the names of `REASONS` that account for the difference; "!" and a text if none does."""
    out = [] if old[2] == new[2] else [f"! stopped_by {old[2]} {new[2]}"]
    if old[0].shape != new[0].shape or not np.array_equal(old[0], new[0], equal_nan=True):
        out.append("! samples")
    for name in FRAMES:
        one, other = old[1][name], new[1][name]
        if one is None or other is None:
            out += [] if one is other else [f"! {name}: one has none"]
        elif name == "events":
            out += _events(one, other, kind)
        else:
            out += _columns(name, one, other, kind)
    return sorted(set(out))


def _columns(name: str, old: Any, new: Any, kind: str) -> list[str]:
    if len(old) != len(new):
        return [f"! {name}: {len(old)} rows, {len(new)} rows"]
    out = []
    for column in old.columns:
        a, b = old[column], new[column]
        if a.equals(b):
            continue
        if kind == "asynchronous" and column in ("opened_s", "downlink_bits"):
            out.append(ASYNCHRONOUS if np.all(b <= a) or column == "downlink_bits" else f"! {name}.{column}")
        elif column.endswith("_s") and a.dtype == b.dtype and np.allclose(a, b, 1e-12, 1e-12, equal_nan=True):
            out.append(TIMES)
        else:
            out.append(f"! {name}.{column}")
    return out


def _events(old: Any, new: Any, kind: str) -> list[str]:
    if old.equals(new):
        return []
    out = [] if old.drop(columns="time_s").equals(new.drop(columns="time_s")) else [ORDER]
    one, other = (Counter(_rows(frame, [])) for frame in (old, new))
    if one == other:
        return [*out, TIMES] if _sorted_times_differ(old, new) else out
    if kind == "asynchronous":  # rounds aside, the new rows are old ones; the others are of visits in flight at the end
        one, other = (Counter(_rows(frame, ["round"])) for frame in (old, new))
        if not other - one and {row[2] for row in one - other} <= {"download", "compute"}:
            return [*out, ASYNCHRONOUS]
    if kind == "tiers":
        unnamed = (f.assign(round=f["round"].where(f["event"] != "from cloud", 0)) for f in (old, new))
        one, other = (Counter(_rows(frame, [])) for frame in unnamed)
        if one == other:
            return [*out, FROM_CLOUD]
    if kind == "gossip":
        ended = ["upload", "drop"]
        same = _frame_rows(old, ended, True) == _frame_rows(new, ended, True)
        one, other = _frame_rows(old, ended, False), _frame_rows(new, ended, False)
        if same and not other - one and {row[3] for row in one - other} <= {"hear"}:
            return [*out, GOSSIP]
    return [*out, "! events"]


def _frame_rows(frame: Any, kinds: list[str], these: bool) -> Counter[Any]:
    """Count the events of these kinds without their times, or all others with them."""
    chosen = frame[frame["event"].isin(kinds) == these]
    return Counter(_rows(chosen, ["time_s"] if these else []))


def _rows(frame: Any, without: list[str]) -> list[Any]:
    names = [n for n in ("replica", "round", "client", "event", "bits") if n not in without]
    rounded = frame[names].astype(object).where(frame[names].notna(), None)
    if "time_s" not in without:
        rounded = rounded.assign(time_s=frame["time_s"].round(10))
    return list(rounded.itertuples(index=False, name=None))


def _sorted_times_differ(old: Any, new: Any) -> bool:
    return not np.array_equal(np.sort(old["time_s"]), np.sort(new["time_s"]))


def kind_of(scenario: Any) -> str:
    """Return the loop that serves a scenario."""
    if type(scenario.participation).__name__ == "Buffered":
        return "asynchronous"
    exchange = type(scenario.exchange).__name__.lower()
    return next((kind for kind in ("tiers", "gossip") if kind in exchange), "star")


def main() -> None:
    sys.path.insert(0, str(HERE / "tests"))
    from golden.golden_scenarios import SCENARIOS

    checkout, parts = Path(sys.argv[1]), sys.argv[2:]

    def compared(edits: list[tuple[str, str]]) -> dict[str, tuple[list[str], list[str]]]:
        old, new = results(checkout, edits, parts), results(HERE, edits, parts)
        out = {}
        for name, found in new.items():
            kind = kind_of(SCENARIOS[name])
            found_by = {clock: differences(old[name]["old"], result, kind) for clock, result in found.items()}
            each = list(found_by.values())
            out[name] = list(found), each[0] if all(e == each[0] for e in each) else [f"! clocks differ: {found_by}"]
        return out

    real, variants = compared([]), {reason: compared(edits) for reason, edits in VARIANTS.items()}
    counts: Counter[str] = Counter()
    for name, (clocks, found) in real.items():
        other = [text for text in found if text.startswith("!")]
        if TIMES in found and TIMES in variants["latency rule"][name][1]:
            other.append("! times at latency 0")
        settled = (r for r, made in variants.items() if not any(text[0] == "!" for text in made[name][1]))
        reason = "NO REASON" if "! times at latency 0" in other else next(settled, "NO REASON")
        named = [text for text in found if text not in other] + ([reason] if other else [])
        counts["; ".join(named) or "equal bits"] += 1
        detail = f" | {', '.join(text[2:] for text in other)}" if other else ""
        print(f"{kind_of(SCENARIOS[name])} | {name} | {', '.join(clocks)} | {'; '.join(named) or 'equal bits'}{detail}")
    print("\nscenarios")
    for text, count in counts.most_common():
        print(f"{count:4} {text}")
    print("\nreasons")
    for text, why in REASONS.items():
        print(f"{text}: {why}")
    sys.exit(int(any("NO REASON" in text for text in counts)))


if __name__ == "__main__":
    main()

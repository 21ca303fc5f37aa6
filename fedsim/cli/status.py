"""`fedsim status`: the state of a run or of a sweep, as text or as JSON, with an exit code for scripts.

0    complete
1    a run failed or is damaged
3    a run is running
4    a run is to do, and none is running
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsim import text
from fedsim.analysis.hosts import host_lines
from fedsim.errors import InvalidInput
from fedsim.results.checksums import to_json
from fedsim.results.folder import CHECKPOINTS, damage, read_manifest, state
from fedsim.results.lock import LOCK
from fedsim.running.activity import Activity, activity
from fedsim.sweeps.execution import CLAIMS
from fedsim.sweeps.execution import status as status_of
from fedsim.sweeps.spec import FILE, SweepSpec
from fedsim.sweeps.study import Failure

SHOWN = 20  # runs listed in full
COMPLETE, FAILED, RUNNING, TO_DO = 0, 1, 3, 4


def status(folder: Path, check: bool = False, as_json: bool = False) -> tuple[list[str], int]:
    """Return the lines to print and the exit code; `check` reads every file."""
    facts, lines = _sweep(folder, check) if (folder / FILE).exists() else _run(folder, check)
    if facts["running"]:
        code = RUNNING
    elif facts["failed"]:
        code = FAILED
    else:
        code = TO_DO if facts["complete"] < facts["runs"] else COMPLETE
    return ([json.dumps(json.loads(to_json({**facts, "exit": code})))] if as_json else lines), code


def _sweep(folder: Path, check: bool) -> tuple[dict[str, Any], list[str]]:
    found = status_of(folder, check)
    spec, running = found.spec, [(run, _activity(folder, run.name)) for run in found.running]
    counts = {"failed": found.failed, "running": found.running, "to do": found.to_do}
    parts = [
        f"{len(found.complete):,} of {len(spec.runs):,} complete",
        *(f"{len(runs):,} {name}" for name, runs in counts.items()),
    ]
    shown = [f"running {run.name} {swept(spec, run.settings)} {_described(seen)}" for run, seen in running[:SHOWN]]
    more = [f"running and {len(running) - SHOWN:,} more"] if len(running) > SHOWN else []
    retry = [f"retry   fedsim sweep ... --out {folder} --retry-failed"] if found.failed else []
    lines = [f"{spec.name}: {', '.join(parts)}", *shown, *more, *failures(folder, spec, found.failed), *retry]
    return {
        "folder": str(folder), "sweep": spec.name, "runs": len(spec.runs), "complete": len(found.complete),
        "failed": [asdict(failure) for failure in found.failed],
        "running": [{"run": run.name, "settings": run.settings, **asdict(seen)} for run, seen in running],
        "to_do": len(found.to_do),
    }, lines  # fmt: skip


def _run(folder: Path, check: bool) -> tuple[dict[str, Any], list[str]]:
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; give the folder of a run or of a sweep")
    found = state(folder, check=check)
    if found in ("foreign", "empty"):
        raise InvalidInput(f"{folder} is no run's and no sweep's folder; give one that fedsim has made")
    facts: dict[str, Any] = {
        "folder": str(folder), "state": found, "runs": 1, "complete": int(found == "complete"), "failed": [],
        "running": [], "to_do": int(found == "unfinished"),
    }  # fmt: skip
    if found == "running":
        seen = activity(folder)
        facts["running"] = [{"run": folder.absolute().name, "settings": {}, **asdict(seen)}]
        return facts, [f"running {_described(seen)}"]
    if found == "damaged":
        sentence = damage(folder, check)
        facts["failed"] = [asdict(Failure(folder.absolute().name, {}, "CorruptData", sentence))]
        return facts, [f"damaged {sentence}"]
    if found == "unfinished":
        saved = sorted((folder / CHECKPOINTS).glob("checkpoint-*.json"))
        where = f"after round {int(saved[-1].stem[11:]):,}" if saved and saved[-1].stem[11:].isdigit() else "none yet"
        return facts, [f"unfinished, checkpoint {where}", f"next    fedsim resume {folder}"]
    facts["hosts"] = read_manifest(folder).get("hosts", [])
    table = host_lines(facts["hosts"], text.width()) if facts["hosts"] else []
    return facts, ["complete", *table, f"next    fedsim report {folder}"]


def _activity(out: Path, name: str) -> Activity:
    """Return what the process of a run has noted: in its folder or, before that exists, in its claim."""
    seen = activity(out / name, LOCK)
    return seen if seen.pid is not None else activity(out / CLAIMS, name)


def _described(seen: Activity) -> str:
    facts = []
    if seen.round is not None:
        facts.append(f"round {seen.round:,}" + (f"/{seen.rounds:,}" if seen.rounds is not None else ""))
    if seen.left_s is not None:
        facts.append(f"ETA {text.seconds(seen.left_s)}")
    if seen.host is not None:
        facts.append(f"process {seen.pid} on {seen.host}")
    if seen.age_s is not None:
        facts.append(f"for {text.seconds(round(seen.age_s))}")
    if seen.idle_s is not None and seen.idle_s >= 60:
        facts.append(f"no round for {text.seconds(seen.idle_s)}")
    return ", ".join(facts)


def swept(spec: SweepSpec, settings: dict[str, Any]) -> str:
    """Return the swept settings of a run."""
    return " ".join(f"{name}={settings[name]}" for name in spec.axes if name in settings)


def failures(out: Path, spec: SweepSpec, failed: Sequence[Failure]) -> list[str]:
    """Return three lines per failed run: its settings, the error and the path of its log."""
    lines = []
    for one in failed[:SHOWN]:
        reason = one.message if f"{one.kind}: " in one.message else f"{one.kind}: {one.message}"
        lines += [f"failed  {one.run} {swept(spec, one.settings)}", f"        {reason}"]
        lines += [f"        log {out / one.run}/run.log"] if (out / one.run / "run.log").exists() else []
    return lines + ([f"failed  and {len(failed) - SHOWN:,} more"] if len(failed) > SHOWN else [])

"""Every JSON file that fedsim reads, mutated: a clear sentence or the right answer, never a traceback."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from strategies.files import TINY

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import FedsimError

ODD = (None, True, -1, 0, 1e308, 10**30, "", "x", "\0", [], {}, [[]], {"": None}, [1, "a"], "\ud800", {"__class__": 1})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A complete run, an interrupted run and a sweep."""
    root = tmp_path_factory.mktemp("folders")
    (root / "tiny.py").write_text(TINY)
    assert call(["run", str(root / "tiny.py"), "--out", str(root / "complete"), "--quiet"]) == 0
    assert call(["sweep", str(root / "tiny.py"), "--out", str(root / "sweep"), "--grid", "seed=0:2", "--jobs", "1", "--quiet"]) == 0  # fmt: skip
    _stopped_early(root)
    return root


def _stopped_early(root):
    from fedsim.scenario_file import load_file

    file = load_file(root / "tiny.py")
    scenario = file.build({"rounds": 4})

    class Enough(Exception):
        pass

    def watch(progress):
        if progress.round >= 3:
            raise Enough

    with pytest.raises(FedsimError, match="raised Enough"):
        fs.run(scenario, out=root / "stopped", checkpoint_every=1, source=file.origin({"rounds": 4}), observers=[watch])
    return scenario


def mutated(data, chance):
    """One change somewhere inside: a value exchanged, a key renamed, taken away or added; or the bytes themselves."""
    kind = chance.integers(6)
    value, end = json.JSONDecoder().raw_decode(data.decode())
    raw, checksum = data, data.decode()[end:].encode()  # it follows the content of a checkpoint
    if kind == 0:
        at = chance.integers(len(raw))
        return raw[:at] + bytes([raw[at] ^ (1 << chance.integers(8))]) + raw[at + 1 :]
    if kind == 1:
        return raw[: chance.integers(len(raw))]
    holders = list(_holders(value))
    holder = holders[chance.integers(len(holders))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return json.dumps(ODD[chance.integers(len(ODD))]).encode()
    key = keys[chance.integers(len(keys))]
    if kind == 2:
        del holder[key]
    elif kind == 3 and isinstance(holder, dict):
        holder["other"] = holder.pop(key)
    else:
        holder[key] = ODD[chance.integers(len(ODD))]
    return json.dumps(value).encode() + checksum


def _holders(value):
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _holders(part)


def campaign(folders, tmp_path, capfd, cases):
    files = sorted(p.relative_to(folders) for p in folders.rglob("*.json"))
    assert {p.name for p in files} >= {"manifest.json", "run.json", "sweep.json"}
    broken = []
    for case in cases:
        chance = np.random.default_rng([case, 11])
        victim = files[case % len(files)]
        top = victim.parts[0]
        shutil.rmtree(tmp_path / top, ignore_errors=True)
        shutil.copytree(folders / top, tmp_path / top)
        (tmp_path / victim).write_bytes(mutated((folders / victim).read_bytes(), chance))
        folder = tmp_path / top
        for name, attempt in _attempts(folder):
            try:
                code = attempt()
            except FedsimError as error:
                broken += [f"{case} {victim} {name}: {error}"] * ("\n" in str(error))
            except Exception as error:
                broken.append(f"{case} {victim} {name}: {type(error).__name__}: {error}")
            else:
                if isinstance(code, int) and code not in (0, 1, 2, 4):
                    broken.append(f"{case} {victim} {name}: exit {code}")
                printed = capfd.readouterr().err
                if "Traceback" in printed or (
                    isinstance(code, int) and code and printed.count("\n") > 1 and name != "status"
                ):
                    broken.append(f"{case} {victim} {name}: printed {printed[:200]!r}")
    return broken


def _attempts(folder):
    yield "load", lambda: _looked_at(fs.load(folder))
    yield "replay", lambda: fs.replay(folder, replica=0, round=1, client=0)
    yield "status", lambda: call(["status", str(folder)])
    yield "report", lambda: call(["report", str(folder)])
    yield "resume", lambda: call(["resume", str(folder), "--quiet"])


def _looked_at(found):
    found.frame() if hasattr(found, "frame") else found.rounds


def test_mutated_json_is_refused_in_a_sentence(folders, tmp_path, capfd):
    assert campaign(folders, tmp_path, capfd, range(40)) == []


@pytest.mark.soak
def test_two_thousand_mutated_files_are_refused_in_a_sentence(folders, tmp_path, capfd):
    assert campaign(folders, tmp_path, capfd, range(100, 2100)) == []

"""Files of the wrong kind, Rays that do not start, limits of the system: one sentence each."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from strategies.files import ENTRY, TINY

import fedsim as fs
from fedsim.errors import FedsimError, RuntimeFailed
from fedsim.runtime.ray.private import OwnRay

HEADER = ",SeriousDlqin2yrs," + ",".join(f"x{i}" for i in range(10))
ROWS = [f"{i},{i % 2}," + ",".join(str(0.1 * i * (j + 1) % 7) for j in range(10)) for i in range(1, 40)]
GRAPHML = "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'><graph edgedefault='undirected'/></graphml>"


def refused(call, *arguments, **options):
    with pytest.raises(FedsimError) as caught:
        call(*arguments, **options)
    assert 20 < len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    return str(caught.value)


CREDIT = {
    "empty": b"",
    "not text": bytes(range(256)) * 9,
    "another table": b"a,b\n1,2\n",
    "no rows": HEADER.encode(),
    "words": "\n".join([HEADER, "1,0," + ",".join(["word"] * 10)]).encode(),
    "labels of another kind": "\n".join([HEADER, *(row.replace(",0,", ",7,").replace(",1,", ",7,") for row in ROWS)]).encode(),
    "a constant column": "\n".join([HEADER, *(f"{i},{i % 2}," + ",".join(["3"] * 10) for i in range(40))]).encode(),
    "infinities": "\n".join([HEADER, *(f"{i},{i % 2}," + ",".join(["inf"] * 10) for i in range(40))]).encode(),
    "numbers of many digits": "\n".join([HEADER, *(f"{i},{i % 2}," + ",".join(["9" * 400] * 10) for i in range(40))]).encode(),
    "ragged": (HEADER + "\n1,2\n1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n").encode(),
}  # fmt: skip


@pytest.mark.parametrize("kind", CREDIT)
def test_a_malformed_credit_file_is_refused(tmp_path, kind):
    (tmp_path / "cs.csv").write_bytes(CREDIT[kind])
    refused(fs.problems.StrategicCredit.from_csv, tmp_path / "cs.csv", clients=3)


def test_a_missing_credit_file_or_a_folder_is_refused(tmp_path):
    refused(fs.problems.StrategicCredit.from_csv, tmp_path / "nowhere.csv")
    refused(fs.problems.StrategicCredit.from_csv, tmp_path)


def test_a_valid_credit_file_is_read(tmp_path):
    (tmp_path / "cs.csv").write_text("\n".join([HEADER, *ROWS]))
    problem = fs.problems.StrategicCredit.from_csv(tmp_path / "cs.csv", clients=3)
    assert (problem.clients, problem.dim) == (3, 11)


@pytest.mark.parametrize("encoding", ["utf-7", "utf-16-le", "rot13", "idna", "nonsense", "hex"])
def test_graphml_in_an_odd_encoding_is_refused(tmp_path, encoding):
    (tmp_path / "net.graphml").write_bytes(f"<?xml version='1.0' encoding='{encoding}'?>{GRAPHML}".encode())
    refused(fs.topologies.from_graphml, tmp_path / "net.graphml")


@pytest.mark.parametrize("huge", [10**400, 10**5000, "9" * 5000, float("inf")], ids=range(4))
def test_numbers_beyond_floats_in_a_device_column_are_refused(huge):
    refused(fs.devices.table, {"seconds_per_step": [0.1, huge]})
    refused(fs.devices.constant, huge)
    refused(fs.devices.from_flops, 1e9, flops_per_second=[huge, 1.0])


def test_a_ray_that_does_not_start_is_a_failure_in_one_sentence(monkeypatch):
    import ray

    def broken(**_):
        raise RuntimeError("The raylet died\nwith many\nlines")

    monkeypatch.setattr(ray, "init", broken)
    with pytest.raises(RuntimeFailed, match="Ray could not start on this machine"):
        OwnRay(1)


ADDRESSES = ("foo", "", " ", ":", "a:b", "1.2.3.4:99999", "1.2.3.4:0", "localhost:²", "http://x:1", "ray://", "[::1]", "a b:1", "x\0:1", "é:1", 7, None, 6379.0, b"a:1", ["a:1"], np.array(["a:1"]))  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES, ids=range(len(ADDRESSES)))
def test_an_invalid_address_is_refused_before_ray_starts(address):
    if address is None:
        assert fs.Ray(address=address).address is None
    else:
        refused(fs.Ray, address=address)


@pytest.mark.slow
def test_few_open_files_and_many_jobs_end_in_one_sentence_or_in_complete_runs(tmp_path):
    (tmp_path / "tiny.py").write_text(TINY)
    line = f"ulimit -n 64; {ENTRY} sweep tiny.py --out s --grid seed=0:60 --jobs 60 --quiet"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr

"""`fedsim run --or-resume`, for jobs that a scheduler submits again, and the options of client hosts."""

import threading

import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.cli.run import runtime_from
from fedsim.errors import Interrupted, InvalidInput
from fedsim.scenario_file import load_file

SCENARIO = """
import fedsim as fs

def scenario(seed: int = 0, rounds: int = 20) -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 3, samples=20), algorithm=fs.algorithms.FALD(1e-3), seed=seed,
        budget=fs.Budget(rounds=rounds),
    )
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.py").write_text(SCENARIO)
    return tmp_path / "it.py"


def test_or_resume_starts_resumes_or_shows_a_run(file, capsys):
    words = ["run", "it.py", "--out", "out", "--or-resume"]
    assert call(words) == 0
    whole, manifest = fs.load("out").fingerprint, (file.parent / "out/manifest.json").read_bytes()
    assert call(words) == 0
    assert whole[:8] in capsys.readouterr().out
    assert (file.parent / "out/manifest.json").read_bytes() == manifest

    loaded, stop = load_file("it.py"), threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            loaded.build({}),
            out="half",
            checkpoint_every=1,
            stop=stop,
            source=loaded.origin({}),
            observers=[lambda progress: stop.set() if progress.round == 5 else None],
        )
    assert call(["run", "it.py", "--out", "half"]) == 2
    assert call(["run", "it.py", "--out", "half", "--or-resume"]) == 0
    assert fs.load("half").fingerprint == whole
    assert not (file.parent / "half/checkpoints").exists()


def test_or_resume_refuses_another_scenario_a_grid_and_a_missing_folder(file, capsys):
    assert call(["run", "it.py", "--out", "out"]) == 0
    assert call(["run", "it.py", "--out", "out", "--or-resume", "--set", "seed=1"]) == 2
    assert "another scenario" in capsys.readouterr().err
    for words in (["it.py"], ["quickstart", "--out", "grid"]):
        assert call(["run", *words, "--or-resume"]) == 2
        assert "--or-resume needs --out and a single run" in capsys.readouterr().err


def test_the_cpus_of_a_host_are_an_option_of_ray_alone():
    assert runtime_from("ray", hosts=2, num_cpus_per_host=0.5) == fs.Ray(hosts=2, num_cpus_per_host=0.5)
    assert runtime_from("ray") == fs.Ray()
    with pytest.raises(InvalidInput, match=r"--num-cpus-per-host 2\.0 has no effect with --runtime inline"):
        runtime_from("inline", num_cpus_per_host=2.0)

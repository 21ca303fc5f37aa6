"""`fedsim reproduce`: figure files, verdicts, files, and the exact moments behind refuted claims."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.devices import LognormalSpeed
from fedsim.reproduce import Claim, Finding, bootstrap, figures, pick, plots, system
from fedsim.reproduce.claims import load_figure
from fedsim.reproduce.run import draw, reproduce
from fedsim.sweeps.study import Study

_FIG2 = load_figure(*next(figure for figure in figures("fa-ld/fig2"))).file.function.__globals__
FALDMoments, Weights = _FIG2["FALDMoments"], _FIG2["Weights"]
FIELDS = ["paper", "figure", "claim", "held", "expected", "ours", "published", "why"]
PUBLISHED = {
    "fa-ld": ("fig1a", "fig1b", "fig1c", "fig1de", "fig2", "fig3", "fig4", "dp"),
    "p-fedavg": tuple(f"fig{n}" for n in range(1, 12)),
    "private-fedpaq": ("fig2", "fig3", "fig4"),
    "fa-hmc": tuple(f"fig{n}" for n in range(1, 8)),
    "qlsd": ("fig1", "figS2", "figS3", "figS5", "figS6", "table3", "table4", "tableS1", "tableS2"),
}
FIGURE = '''"""A toy: two steps towards a mean."""
import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick, plots, system

quick = {"local_steps": [1, 2], "rounds": 3}
full = {"local_steps": [1, 2], "rounds": 5}

def scenario(*, local_steps: int = 1, rounds: int = 3) -> fs.Scenario:
    problem = fs.problems.GaussianMean([[[1.0]], [[3.0]]], [[1.0]])
    return fs.Scenario(problem=problem, algorithm=fs.algorithms.FedAvg(step_size=0.1, local_steps=local_steps),
                       budget=fs.Budget(rounds=rounds), **system(2))

def nearer(study):
    one, two = (abs(pick(study, local_steps=K).samples[-1, 0, 0] - 2) for K in (1, 2))
    return Finding(bool(two < one), f"{one:.3f} and {two:.3f} from the mean")

def figure(study):
    return plots.panels(
        {"toy": {f"K = {s['local_steps']}": plots.Series([1, 2], [1, s["local_steps"]]) for s, _ in study.runs}},
        "x", "y")

def unsure(study):
    return Finding(True, "0.1 (95 % -0.2 to 0.4)", undecided=True)

claims = [
    Claim("More steps come nearer", nearer, published="yes", why="A1"),
    Claim("Fewer steps come nearer", lambda study: Finding(False, "no"), published="yes", why="A2", expected="cannot"),
    Claim("Something small", unsure, published="0.1", why="A3"),
    Claim("Only in full", lambda study: None, published="1", why="A4"),
    Claim("Never run", None, published="2", why="no data"),
]
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scenarios" / "papers" / "toy"
    folder.mkdir(parents=True)
    (folder / "fig1.py").write_text(FIGURE)
    monkeypatch.setattr(sys.modules["fedsim.reproduce.claims"], "scenarios_folder", lambda: tmp_path / "scenarios")
    return folder / "fig1.py"


def test_every_published_figure_has_a_file() -> None:
    found = [(paper, path.stem) for paper, path in figures()]
    assert sorted(found) == sorted((paper, name) for paper, names in PUBLISHED.items() for name in names)


@pytest.mark.parametrize(("paper", "path"), figures(), ids=lambda value: getattr(value, "stem", value))
def test_a_figure_has_claims_and_sets_arguments_of_its_scenario(paper: str, path: Path) -> None:
    figure = load_figure(paper, path)
    known = {parameter.name for parameter in figure.file.parameters}
    assert set(figure.quick) <= known
    assert set(figure.full) <= known
    assert figure.title
    assert len({claim.claim for claim in figure.claims}) == len(figure.claims)
    for claim in figure.claims:
        assert all((claim.claim, claim.published, claim.why))
        if claim.expected == "cannot":
            assert any(code in claim.why for code in ("A", "B", "C", "D", "E")), "a refuted claim names its decision"


def test_claims_that_are_refuted_name_a_known_decision() -> None:
    for paper, path in figures():
        for claim in load_figure(paper, path).claims:
            if claim.expected == "cannot":
                code = claim.why.split(":")[0].split(",")[0].strip()
                assert fs.explain(code), claim.why


def test_figures_import_the_helpers_of_their_own_folder() -> None:
    both = [pair for pair in figures() if pair[1].stem in ("fig1a", "fig1")]
    for paper, path in [*both, *reversed(both)]:
        assert load_figure(paper, path).claims


def test_verdicts_have_their_fields_and_mark_claims_that_were_not_run(toy: Path, tmp_path: Path) -> None:
    verdicts, failed = reproduce(out=tmp_path / "out", jobs=1)
    assert not failed
    assert json.loads((tmp_path / "out" / "claims.json").read_text()) == verdicts
    assert [list(verdict) for verdict in verdicts] == [FIELDS] * 5
    assert [verdict["held"] for verdict in verdicts] == [True, False, True, None, None]
    assert [verdict["expected"] for verdict in verdicts] == ["holds", "cannot", "undecided", "holds", "holds"]
    assert "--full" in verdicts[3]["why"]
    assert verdicts[4]["why"] == "no data"


def test_complete_runs_are_only_judged_again(toy: Path, tmp_path: Path) -> None:
    first, _ = reproduce(out=tmp_path / "out", jobs=1)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.npz")}
    again, _ = reproduce(out=tmp_path / "out", jobs=1)
    assert first == again
    assert written
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.npz")}


@pytest.mark.parametrize(("paper", "path"), figures(), ids=lambda value: getattr(value, "stem", value))
def test_a_figure_file_defines_a_figure_or_a_table(paper: str, path: Path) -> None:
    figure = load_figure(paper, path)
    assert (figure.file.figure is not None) == (not path.stem.startswith("table"))
    assert (figure.table is not None) == path.stem.startswith("table")


def test_a_figure_is_drawn_with_the_costs_of_its_settings(toy: Path, tmp_path: Path) -> None:
    reproduce(out=tmp_path, jobs=1)
    assert (tmp_path / "toy" / "fig1" / "figure.png").read_bytes().startswith(b"\x89PNG")
    tables = json.loads((tmp_path / "toy" / "fig1" / "tables.json").read_text())
    assert tables["title"] == "A toy: two steps towards a mean."
    assert "1 Mbit/s up" in tables["note"]
    assert tables["spent"]["columns"] == ["local_steps", "rounds", "uplink_bits", "seconds"]
    one, two = tables["spent"]["rows"]
    assert one[:3] == [1, 3, 3 * 2 * 64]  # rounds x clients x a float64
    step = LognormalSpeed(0.01, sigma=0.5).seconds_per_step(np.arange(2)).max()
    assert one[3] == pytest.approx(3 * (step + 2 * 0.02 + 64 / 1e6 + 64 / 1e7))
    assert two[3] == pytest.approx(one[3] + 3 * step)


def test_an_error_in_drawing_is_one_line_and_affects_no_claim(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.write_text(FIGURE.replace("def figure(study):\n", "def figure(study):\n    [][0]\n"))
    assert call(["reproduce", "--jobs", "1", "--out", str(tmp_path)]) == 0
    verdicts = json.loads((tmp_path / "claims.json").read_text())
    assert [verdict["held"] for verdict in verdicts] == [True, False, True, None, None]
    assert "not drawn: InvalidInput" in capsys.readouterr().out
    assert not (tmp_path / "toy" / "fig1" / "figure.png").exists()
    assert (tmp_path / "toy" / "fig1" / "tables.json").exists()


def test_one_run_of_a_figure_is_not_drawn(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    toy.write_text(FIGURE.replace("def figure(study):\n", "def figure(study):\n    study.runs[1]\n"))
    assert call(["run", str(toy), "--quiet"]) == 0
    assert not list(tmp_path.glob("*.png"))


def test_a_table_is_saved_as_plain_numbers_and_must_have_rows(toy: Path, tmp_path: Path) -> None:
    toy.write_text(FIGURE + "table = lambda study: rows\n")
    figure = load_figure("toy", toy)
    study = Study("toy", (({"local_steps": 1}, fs.run(figure.file.build({}))),))
    names = figure.file.function.__globals__
    names["rows"] = [{"a": np.float64(0.5), "b": np.nan}, {"a": 2}]
    assert draw(figure, study, ["local_steps"], tmp_path) == ""
    tables = json.loads((tmp_path / "tables.json").read_text())
    assert tables["table"] == {"columns": ["a", "b"], "rows": [[0.5, None], [2, None]]}
    names["rows"] = []
    assert "table() returned no rows" in draw(figure, study, ["local_steps"], tmp_path)


def test_samples_do_not_depend_on_the_assumed_system() -> None:
    problem = fs.problems.GaussianMean.synthetic(6, 2, 1.0, 10, seed=1)
    for policy in (fs.participation.full(), fs.participation.uniform(3), fs.participation.with_replacement(3)):
        plain = fs.Scenario(
            problem=problem, algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=3), participation=policy,
            budget=fs.Budget(rounds=5), replicas=2, seed=1,
        )  # fmt: skip
        for phones in (True, False):
            timed = fs.run(replace(plain, **system(6, phones=phones)))
            np.testing.assert_array_equal(timed.samples, fs.run(plain).samples)
            assert timed.rounds["closed_s"].min() > 0


def test_panels_need_one_label_or_one_per_panel() -> None:
    one = {"line": plots.Series([1, 2], [1, np.inf])}
    figure = plots.panels({"a": one, "b": one, "c": one, "d": one}, "x", ["p", "q", "r", "s"], "y")
    assert [axes.get_ylabel() for axes in figure.axes] == ["p", "q", "r", "s"]
    assert list(figure.axes[0].lines[0].get_xdata()) == [1]  # only what is finite
    with pytest.raises(fs.errors.InvalidInput, match="2 labels for 1 panels"):
        plots.panels({"a": one}, ["x", "y"], "y")


def test_the_best_curve_is_the_highest_accuracy_and_the_lowest_error() -> None:
    def made(*values: float) -> SimpleNamespace:
        table = pd.DataFrame({"round": [1, 2], "accuracy": values, "ece": values})
        return SimpleNamespace(metrics=pd.DataFrame(), rounds=table)

    low, high = made(0.9, 0.1), made(0.2, 0.8)
    assert list(plots.best([low, high], "accuracy").y) == [0.2, 0.8]
    assert list(plots.best([low, high], "ece").y) == [0.9, 0.1]


def test_figures_reproduced_one_by_one_share_a_claims_file(toy: Path, tmp_path: Path) -> None:
    (toy.parent / "fig2.py").write_text(FIGURE + "needs = ('no such set',)")
    toy.write_text(FIGURE + "needs = ('no such set',)")
    reproduce("toy/fig1", out=tmp_path / "out", jobs=1)
    reproduce("toy/fig2", out=tmp_path / "out", jobs=1)
    verdicts = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert [verdict["figure"] for verdict in verdicts] == ["fig1"] * 5 + ["fig2"] * 5


def test_the_exit_code_is_1_only_if_a_claim_could_not_be_judged(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["reproduce", "--quick", "--jobs", "1", "--out", str(tmp_path / "a")]) == 0
    assert "1 held of 1 that can hold and were run" in capsys.readouterr().out
    toy.write_text(FIGURE.replace("return Finding(bool(two < one)", "return Finding(bool(1 / 0)"))
    assert call(["reproduce", "--quick", "--jobs", "1", "--out", str(tmp_path / "b")]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_figure_without_its_data_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    verdicts, failed = reproduce("fa-ld/fig3", out=tmp_path / "out")
    assert not failed
    assert all(verdict["held"] is None and "mnist" in verdict["why"] for verdict in verdicts)


def test_a_figure_that_does_not_exist_is_refused() -> None:
    with pytest.raises(fs.errors.InvalidInput, match="fig1a"):
        figures("fa-ld/fig99")


def test_pick_needs_exactly_one_run() -> None:
    settings = [{"local_steps": 1, "rounds": 3}, {"local_steps": 2, "rounds": 3}]
    study = SimpleNamespace(frame=lambda: pd.DataFrame(settings), runs=list(zip(settings, ["one", "two"], strict=True)))
    assert pick(study, local_steps=2) == "two"
    with pytest.raises(fs.errors.InvalidInput, match="name exactly one"):
        pick(study, rounds=3)


def test_a_claim_has_one_of_three_expectations() -> None:
    with pytest.raises(fs.errors.InvalidInput, match="undecided"):
        Claim("x", lambda study: Finding(True, ""), published="", why="", expected="maybe")  # type: ignore[arg-type]


def test_a_bootstrap_interval_narrows_about_the_mean() -> None:
    values = fs.rng.normal(fs.rng.keys(3, fs.rng.Stream.DATA), 400)[0]
    low, high = bootstrap(values)
    assert low < values.mean() < high
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.1)


def _by_hand(start: float, eta: float, K: int, rho: float, p: list[float], h: list[float], m: list[float], rounds: int):
    """Return mean and variance of a scalar FA-LD from the squared coefficients of all its noises."""
    mean, variance = start, 0.0
    for _ in range(rounds):
        ends = []  # mean, factor of theta, coefficients of (shared noise of step k), (own noise of step k)
        for p_c, h_c, m_c in zip(p, h, m, strict=True):
            a = 1 - eta * h_c / p_c
            mu = mean
            for _ in range(K):
                mu = a * mu + eta * h_c * m_c / p_c
            shared = [np.sqrt(2 * eta) * rho * a ** (K - 1 - k) for k in range(K)]
            own = [np.sqrt(2 * eta * (1 - rho**2) / p_c) * a ** (K - 1 - k) for k in range(K)]
            ends.append((mu, a**K, shared, own))
        mean = sum(w * e[0] for w, e in zip(p, ends, strict=True))
        variance *= sum(w * e[1] for w, e in zip(p, ends, strict=True)) ** 2
        variance += sum(sum(w * e[2][k] for w, e in zip(p, ends, strict=True)) ** 2 for k in range(K))
        variance += sum(w**2 * x**2 for w, e in zip(p, ends, strict=True) for x in e[3])
    return mean, variance


@pytest.mark.parametrize(("K", "rho"), [(1, 0.0), (3, 0.0), (3, 0.6), (4, 1.0)])
def test_exact_moments_are_those_of_the_recursion_written_out(K: int, rho: float) -> None:
    problem = fs.problems.GaussianMean([[[1.0], [2.0]], [[5.0]]], [[[1.0]], [[0.5]]])
    moments = FALDMoments(problem, 0.02, K, rho)
    mean, variance = moments.after(7)
    expected = _by_hand(0.0, 0.02, K, rho, [2 / 3, 1 / 3], [2.0, 2.0], [1.5, 5.0], 7)
    assert (mean[0], variance[0, 0]) == pytest.approx(expected, rel=1e-12)


def test_weights_of_both_schemes_have_the_moments_of_their_draws() -> None:
    from itertools import combinations, product

    p, S = np.array([0.5, 0.3, 0.2]), 2
    with_, without = Weights.with_replacement(p, S), Weights.uniform(p, S)
    draws = [(np.prod(p[list(own)]), np.bincount(own, minlength=3) / S) for own in product(range(3), repeat=S)]
    np.testing.assert_allclose(with_.second, sum(q * np.outer(a, a) for q, a in draws), rtol=1e-12)
    sets = [np.isin(range(3), own) / S for own in combinations(range(3), S)]
    np.testing.assert_allclose(without.second, np.mean([np.outer(a, a) for a in sets], axis=0), rtol=1e-12)


def test_rounds_to_a_level_is_the_first_round_below_it() -> None:
    moments = FALDMoments(fs.problems.GaussianMean([[[1.0]], [[3.0]]], [[1.0]]), 0.01, 5)
    n = int(moments.rounds_to(0.5))
    before, after = (moments.w2(moments.after(k)) for k in (n - 1, n))
    assert after <= 0.5 < before
    assert np.isinf(moments.rounds_to(1e-9))
    curve = [moments.w2(moments.after(k)) for k in range(1, n)]
    assert all(a > b for a, b in pairwise(curve))


@pytest.mark.soak
def test_the_quick_form_of_everything_runs_and_each_claim_that_did_not_hold_has_a_reason(tmp_path: Path) -> None:
    assert call(["reproduce", "--quick", "--out", str(tmp_path)]) == 0
    verdicts = json.loads((tmp_path / "claims.json").read_text())
    assert sum(v["expected"] == "holds" and v["held"] is not None for v in verdicts) >= 30
    assert all(v["why"] for v in verdicts if v["held"] is not True)

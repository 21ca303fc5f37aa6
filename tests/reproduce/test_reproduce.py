"""`fedsim reproduce`: figure files, verdicts, files, and the exact moments behind refuted claims."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.devices import LognormalSpeed
from fedsim.reproduce import claims, figures, pick, plots, system
from fedsim.reproduce.claims import not_run
from fedsim.reproduce.figures import load_figure
from fedsim.reproduce.run import draw, reproduce
from fedsim.reproduce.settings import departures, settings_table
from fedsim.sweeps.study import Study

PUBLISHED = {
    "fa-ld": ("theorems", "fig1a", "fig1b", "fig1c", "fig1de", "fig2", "fig3", "fig4", "dp"),
    "p-fedavg": ("theorems", *(f"fig{n}" for n in range(1, 12))),
    "private-fedpaq": ("theorems", "fig2", "fig3", "fig4"),
    "fa-hmc": ("theorems", *(f"fig{n}" for n in range(1, 8))),
    "qlsd": ("theorems", "fig1", "figS2", "figS3", "figS5", "figS6", "table3", "table4", "tableS1", "tableS2"),
}
FIGURE = '''"""A toy: two steps towards a mean."""
import fedsim as fs
from fedsim.reproduce import exact, judge, ordered, pick, plots, repeats, stream, superiority, system
from fedsim.reproduce import found as runs

paper = {"local_steps": [1, 2], "rounds": 3}
quick = {"local_steps": [1, 2], "rounds": 3, "seed": repeats(5)}
full = {"local_steps": [1, 2], "rounds": 5, "seed": repeats(5)}

def scenario(*, local_steps: int = 1, rounds: int = 3, seed: int = 0) -> fs.Scenario:
    problem = fs.problems.GaussianMean([[[1.0]], [[3.0]]], [[1.0]])
    return fs.Scenario(problem=problem, algorithm=fs.algorithms.FALD(step_size=0.01, local_steps=local_steps),
                       budget=fs.Budget(rounds=rounds), seed=stream("toy", local_steps, seed), **system(2))

@judge("nearer")
def nearer(study):
    first = [[run.samples[0, 0, 0] for run in runs(study, local_steps=K)] for K in (1, 2)]
    return superiority(*first, margin=-100.0)

@judge("refuted")
def refuted():
    return exact(False, "no").refuted("A13: one Hessian")

@judge("reverse")
def reverse(study):
    return ordered([1.0, 2.0])

def figure(study):
    return plots.panels({"toy": {f"K = {K}": plots.Series([1, 2], [1, K]) for K in (1, 2)}}, "x", "y")
'''
CLAIM = """
[[claim]]
id = "{id}"
figure = "fig1"
quote = "two words about {id}"
where = "section 1"
metric = "W2"
comparison = "smaller"
tolerance = 0.5
reason = "a half"
kind = "exact"
seen_before = true
history = ["Earlier: 0.6."]
"""
IDS = ("nearer", "refuted", "reverse", "expensive", "unjudged")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scenarios" / "papers" / "toy"
    folder.mkdir(parents=True)
    (folder / "fig1.py").write_text(FIGURE)
    (folder / "claims.toml").write_text("".join(CLAIM.replace("{id}", id) for id in IDS))
    (folder / "not_run.toml").write_text('[cost]\nexpensive = "four days"\n')
    for module in ("figures", "claims"):
        name = f"fedsim.reproduce.{module}"
        monkeypatch.setattr(sys.modules[name], "scenarios_folder", lambda: tmp_path / "scenarios")
    return folder / "fig1.py"


def verdicts_of(rows: list[dict]) -> dict[str, str]:
    return {row["claim"]: row["verdict"] for row in rows}


EXPECTED = {
    "nearer": "held", "refuted": "refuted", "reverse": "not held", "expensive": "not run", "unjudged": "not run",
}  # fmt: skip


def test_every_published_figure_has_a_file() -> None:
    found = [(paper, path.stem) for paper, path in figures()]
    assert sorted(found) == sorted((paper, name) for paper, names in PUBLISHED.items() for name in names)


@pytest.mark.parametrize(("paper", "path"), figures(), ids=lambda value: getattr(value, "stem", value))
def test_a_figure_has_claims_and_sets_arguments_of_its_scenario(paper: str, path: Path) -> None:
    figure = load_figure(paper, path)
    assert figure.title
    assert figure.claims
    if figure.file is not None:
        known = {parameter.name for parameter in figure.file.parameters}
        assert {*figure.quick, *figure.full} <= known


def test_figures_import_the_helpers_of_their_own_folder() -> None:
    both = [pair for pair in figures() if pair[1].stem in ("fig1a", "fig1")]
    for paper, path in [*both, *reversed(both)]:
        assert load_figure(paper, path).claims


def test_every_claim_has_a_row_with_its_quotation_verdict_and_settings(toy: Path, tmp_path: Path) -> None:
    rows, failed = reproduce(out=tmp_path / "out", jobs=1)
    assert not failed
    assert json.loads((tmp_path / "out" / "claims.json").read_text()) == rows
    assert verdicts_of(rows) == EXPECTED
    nearer, refuted, _, expensive, unjudged = rows
    assert (nearer["quote"], nearer["history"]) == ("two words about nearer", ["Earlier: 0.6."])
    assert nearer["seeds"] == 5
    assert nearer["interval"][0] < nearer["interval"][1]
    assert refuted["why"] == "A13: one Hessian"
    assert expensive["why"] == "four days"
    assert unjudged["why"] == "no judge yet"
    rounds = next(row for row in nearer["settings"] if row["setting"] == "rounds")
    assert (rounds["paper"], rounds["quick"], rounds["full"], rounds["departs"]) == (3, 3, 5, False)


def test_a_departure_from_the_paper_is_not_comparable_unless_it_is_harmless(toy: Path, tmp_path: Path) -> None:
    rows, _ = reproduce(out=tmp_path / "a", form="full", jobs=1)
    assert verdicts_of(rows) == EXPECTED | {"nearer": "not comparable", "reverse": "not comparable"}
    assert [row["on_stand_in"] for row in rows] == ["held", "", "not held", "", ""]
    assert rows[0]["change"] == "rounds is 5, in the paper 3"
    toy.write_text(FIGURE + 'harmless = {"rounds": "it has converged"}\n')
    rows, _ = reproduce(out=tmp_path / "b", form="full", jobs=1)
    assert verdicts_of(rows) == EXPECTED
    assert next(r for r in rows[0]["settings"] if r["setting"] == "rounds")["harmless"] == "it has converged"
    toy.write_text(FIGURE + 'stand_in = "digits"\n')
    rows, _ = reproduce(out=tmp_path / "c", jobs=1)
    assert verdicts_of(rows)["reverse"] == "not comparable"
    assert verdicts_of(rows)["refuted"] == "refuted"  # it uses no data


def test_methods_that_share_a_seed_are_refused_unless_they_are_paired(toy: Path, tmp_path: Path) -> None:
    shared = FIGURE.replace('stream("toy", local_steps, seed)', 'stream("toy", seed)')
    toy.write_text(shared)
    rows, failed = reproduce(out=tmp_path / "a", jobs=1)
    assert len(failed) == 2
    assert "runs of different local_steps share a seed" in rows[0]["why"]
    toy.write_text(shared + 'paired = ("local_steps",)\n')
    rows, failed = reproduce(out=tmp_path / "b", jobs=1)
    assert not failed
    assert verdicts_of(rows) == EXPECTED


def test_stored_verdicts_replace_those_that_quick_cannot_give(toy: Path, tmp_path: Path) -> None:
    toy.write_text(FIGURE.replace('"rounds": 5, "seed"', '"rounds": 3, "seed"').replace("repeats(5)", "repeats(4)", 1))
    full, _ = reproduce(out=tmp_path / "full", form="full", jobs=1, store=True)
    assert verdicts_of(full) == EXPECTED
    assert (toy.parent / "results" / "fig1.json").is_file()
    rows, _ = reproduce(out=tmp_path / "quick", jobs=1)
    assert verdicts_of(rows) == EXPECTED
    assert rows[0]["date"]
    assert rows[0]["form"] == "full"
    assert rows[0]["ours"] == full[0]["ours"]
    assert not rows[2]["date"]  # quick decides it

    toy.write_text(toy.read_text().replace("step_size=0.01", "step_size=0.02"))  # another scenario
    rows, _ = reproduce(out=tmp_path / "later", jobs=1)
    assert verdicts_of(rows) == EXPECTED | {"nearer": "not run"}
    assert "held (" in rows[0]["older"]
    assert "older version" in rows[0]["older"]


@pytest.mark.parametrize("change", ["claim", "comment"])
def test_a_stored_verdict_belongs_to_its_claim_and_survives_comments(toy: Path, tmp_path: Path, change: str) -> None:
    toy.write_text(FIGURE.replace('"rounds": 5, "seed"', '"rounds": 3, "seed"').replace("repeats(5)", "repeats(4)", 1))
    reproduce(out=tmp_path / "full", form="full", jobs=1, store=True)
    if change == "claim":
        claims = toy.with_name("claims.toml")
        claims.write_text(claims.read_text().replace("tolerance = 0.5", "tolerance = 0.4"))
    else:
        toy.write_text("# a comment\n" + toy.read_text().replace("A toy:", "The toy:"))
    rows, _ = reproduce(out=tmp_path / "quick", jobs=1)
    assert verdicts_of(rows)["nearer"] == ("held" if change == "comment" else "not run")


def test_a_judge_of_an_unknown_claim_and_a_second_judge_are_refused(toy: Path) -> None:
    toy.write_text(FIGURE.replace('@judge("reverse")', '@judge("revers")'))
    with pytest.raises(fs.errors.InvalidInput, match="no claim of this figure"):
        load_figure("toy", toy)
    toy.write_text(FIGURE.replace('@judge("reverse")', '@judge("nearer")'))
    with pytest.raises(fs.errors.InvalidInput, match="two judges"):
        load_figure("toy", toy)


def test_a_claim_with_a_judge_is_not_given_up(toy: Path, tmp_path: Path) -> None:
    (toy.parent / "not_run.toml").write_text('[cost]\nnearer = "four days"\n')
    with pytest.raises(fs.errors.InvalidInput, match="remove one of them"):
        reproduce(out=tmp_path / "out", jobs=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[cost]\nother = "x"', "'other' is no claim"),
        ('[price]\nnearer = "x"', "unknown table 'price'"),
        ('[cost]\nexpensive = ""', "has no reason"),
    ],
)
def test_a_mistake_in_the_claims_that_are_given_up_is_refused(toy: Path, text: str, message: str) -> None:
    toy.with_name("not_run.toml").write_text(text)
    with pytest.raises(fs.errors.InvalidInput, match=message):
        not_run("toy")


JUDGED = ("fa-hmc", "fa-ld", "p-fedavg", "private-fedpaq", "qlsd")  # papers whose claims all have a judge, or a reason


@pytest.mark.parametrize("paper", JUDGED)
def test_every_claim_of_a_judged_paper_has_a_judge_or_a_reason(paper: str) -> None:
    judged = {id for _, path in figures(paper) for id in load_figure(paper, path).judges}
    ids = {claim.id for claim in claims.load(paper)}
    assert ids - judged - set(not_run(paper)) == set()


@pytest.mark.parametrize("paper", JUDGED)
def test_a_full_form_that_is_not_the_papers_experiment_says_so_first(paper: str) -> None:
    for _, path in figures(paper):
        figure = load_figure(paper, path)
        if figure.stand_in or departures(settings_table(figure, "full"), "full"):
            assert "not the paper's" in figure.title, f"{paper}/{figure.name}"


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
    is_table, has_runs = path.stem.startswith("table"), path.stem != "theorems"
    assert (figure.table is not None) == is_table
    assert (figure.file is not None) == has_runs
    assert (figure.file is not None and figure.file.figure is not None) == (has_runs and not is_table)


def test_a_figure_is_drawn_with_the_costs_of_its_settings(toy: Path, tmp_path: Path) -> None:
    reproduce(out=tmp_path, jobs=1)
    assert (tmp_path / "toy" / "fig1" / "figure.png").read_bytes().startswith(b"\x89PNG")
    tables = json.loads((tmp_path / "toy" / "fig1" / "tables.json").read_text())
    assert tables["title"] == "A toy: two steps towards a mean."
    assert "1 Mbit/s up" in tables["note"]
    assert tables["spent"]["columns"] == ["local_steps", "seed", "rounds", "uplink_bits", "seconds"]
    one, two = ([row[0], *row[2:]] for row in tables["spent"]["rows"][::5])
    assert one[:3] == [1, 3, 3 * 2 * 64]  # rounds x clients x a float64
    step = LognormalSpeed(0.01, sigma=0.5).seconds_per_step(np.arange(2)).max()
    assert one[3] == pytest.approx(3 * (step + 2 * 0.02 + 64 / 1e6 + 64 / 1e7))
    assert two[3] == pytest.approx(one[3] + 3 * step)


def test_an_error_in_drawing_is_one_line_and_affects_no_claim(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.write_text(FIGURE.replace("def figure(study):\n", "def figure(study):\n    [][0]\n"))
    assert call(["reproduce", "--jobs", "1", "--out", str(tmp_path)]) == 0
    assert verdicts_of(json.loads((tmp_path / "claims.json").read_text())) == EXPECTED
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
    claims_file = toy.with_name("claims.toml")
    claims_file.write_text(claims_file.read_text() + CLAIM.replace("{id}", "other").replace("fig1", "fig2"))
    (toy.parent / "fig2.py").write_text(FIGURE.split("@judge")[0])
    toy.write_text(FIGURE + "needs = ('no such set',)")
    reproduce("toy/fig1", out=tmp_path / "out", jobs=1)
    reproduce("toy/fig2", out=tmp_path / "out", jobs=1)
    verdicts = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert [verdict["figure"] for verdict in verdicts] == ["fig1"] * 5 + ["fig2"]


def test_the_exit_code_is_1_only_if_a_claim_could_not_be_judged(
    toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["reproduce", "--quick", "--jobs", "1", "--out", str(tmp_path / "a")]) == 0
    assert (
        "5 claims: 1 refuted, 1 not held, 0 inconclusive, 1 held, 0 not comparable, 2 not run"
        in capsys.readouterr().out
    )
    toy.write_text(FIGURE.replace("return ordered([1.0, 2.0])", "return ordered([1 / 0])"))
    assert call(["reproduce", "--quick", "--jobs", "1", "--out", str(tmp_path / "b")]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_figure_without_its_data_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows, failed = reproduce("fa-ld/fig3", out=tmp_path / "out")
    assert not failed
    assert set(verdicts_of(rows).values()) == {"not run"}


def test_a_figure_that_does_not_exist_is_refused() -> None:
    with pytest.raises(fs.errors.InvalidInput, match="fig1a"):
        figures("fa-ld/fig99")


def test_pick_needs_exactly_one_run() -> None:
    settings = [{"local_steps": 1, "rounds": 3}, {"local_steps": 2, "rounds": 3}]
    study = SimpleNamespace(frame=lambda: pd.DataFrame(settings), runs=list(zip(settings, ["one", "two"], strict=True)))
    assert pick(study, local_steps=2) == "two"
    with pytest.raises(fs.errors.InvalidInput, match="name exactly one"):
        pick(study, rounds=3)


@pytest.mark.soak
def test_the_quick_form_of_everything_runs(tmp_path: Path) -> None:
    assert call(["reproduce", "--quick", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "claims.json").read_text())
    assert len(rows) == sum(len(claims.load(paper)) for paper in claims.papers())
    assert all(row["why"] for row in rows if row["verdict"] in ("refuted", "not run"))

"""Inputs of the functions of `fs.analysis`: results, folders, studies, or a list or mapping of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from fedsim.checks import call_function, check_path
from fedsim.errors import InvalidInput
from fedsim.results import Result, load
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

HIGHER_IS_BETTER = frozenset(
    ("accuracy", "ess", "ess_tail", "ess_per_megabit", "ess_per_second", "accepted", "agreement", "accuracy_above")
)  # of all other metrics, lower is better


class Answer(NamedTuple):
    """A tidy table (summary values in `frame.attrs`) and its figure: `frame, figure = fs.analysis.time_to(...)`."""

    frame: pd.DataFrame
    figure: Figure

    def _repr_html_(self) -> str:
        """Return the table as HTML; `answer.figure` shows the figure."""
        return str(self.frame.to_html(index=False, border=0))


@dataclass(frozen=True)
class LabelledRun:
    """A run with its settings and a label, which runs that differ only in their seed share."""

    label: str
    settings: dict[str, Any]
    result: Result

    @property
    def seed(self) -> int:
        seed = self.settings.get("seed", (self.result.manifest.get("scenario") or {}).get("seed", 0))
        return int(seed)


@runtime_checkable
class StudyLike(Protocol):
    """A study: `runs` holds (settings, result) pairs."""

    runs: Any


def collect_runs(results: object) -> list[LabelledRun]:
    """Return all runs in `results`: a Result, the folder of a run or sweep, a study, or several of these."""
    found = list(_collect(results, ""))
    if not found:
        raise InvalidInput(f"results={short_repr(results)}: it contains no complete run")
    if all(one.label for one in found):
        return found
    names = _differing([one.settings for one in found])
    words = [" ".join(f"{n}={one.settings.get(n)}" for n in names) or "run" for one in found]
    return [LabelledRun(one.label or word, one.settings, one.result) for one, word in zip(found, words, strict=True)]


def run_columns(one: LabelledRun) -> dict[str, Any]:
    """Return the columns that identify the run of a row."""
    return {"run": one.label, **{n: v for n, v in one.settings.items() if n not in ("seed", "run")}, "seed": one.seed}


def _collect(results: object, label: str) -> Iterator[LabelledRun]:
    if isinstance(results, Result):
        yield LabelledRun(label, dict(_settings(results)), results)
    elif isinstance(results, str | Path):
        yield from _folder(check_path("results", results), label)
    elif isinstance(results, Mapping):
        for name, own in results.items():
            for one in _collect(own, str(name)):
                yield LabelledRun(str(name), one.settings, one.result)
    elif isinstance(results, StudyLike):
        for settings, result in results.runs:
            yield LabelledRun(label, dict(settings), result)
    elif isinstance(results, Iterable):
        for own in call_function(f"results={short_repr(results)}", list, results):
            folder = check_path("results", own) if isinstance(own, str | Path) else None
            yield from _collect(own, folder.name if folder is not None and _is_run(folder) else label)
    else:
        raise InvalidInput(
            f"results={short_repr(results)}: give a result, a folder, a study, or a list or mapping of them"
        )


def _folder(folder: Path, label: str) -> Iterator[LabelledRun]:
    """Yield one run, or every complete run in the sub-folders; no code in them is executed."""
    if _is_run(folder) or not folder.is_dir():
        result = load(folder)
        yield LabelledRun(label, dict(_settings(result)), result)
        return
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and _is_run(path)]
    if not below:
        load(folder)  # raises the error that names the problem
    for path in below:
        result = load(path)
        yield LabelledRun(label, dict(_settings(result)), result)


def _is_run(folder: Path) -> bool:
    return (folder / "manifest.json").exists()


def _settings(result: Result) -> Mapping[str, Any]:
    source = result.manifest.get("source")
    settings = source.get("settings") if isinstance(source, Mapping) else None
    return settings if isinstance(settings, Mapping) else {}


def _differing(settings: list[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one if name != "seed")
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]

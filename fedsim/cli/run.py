"""`fedsim run`: a scenario file from the header to the summary and the picture."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim import settings as texts
from fedsim.cli import header, progress, summary
from fedsim.errors import FedsimError, InvalidInput
from fedsim.results import write_atomic
from fedsim.results.atomic import check_writable, new_folder
from fedsim.runtime.inline import Inline
from fedsim.scenario import run as simulate
from fedsim.scenario_file import ScenarioFile, load_file
from fedsim.study import Study, grid_runs

RUNTIMES = {"inline": Inline}


def runtime_named(name: str, threads: int | None) -> Any:
    """The runtime that a word on the command line stands for."""
    if name not in RUNTIMES:
        raise InvalidInput(f"--runtime {name}: there is {', '.join(RUNTIMES)}")
    return RUNTIMES[name](threads=threads)


def help_lines(file: str) -> list[str]:
    """The arguments of a file's `scenario()`: name, type, default."""
    loaded = load_file(file)
    rows = [
        (p.name, texts.spelled(p.annotation), "required" if p.required else repr(p.default))
        for p in loaded.parameters
    ]
    if not rows:
        return [f"{loaded.path} has no arguments of its own."]
    wide = [max(len(row[i]) for row in rows) for i in (0, 1)]
    grid = [f"Its grid: {', '.join(f'{name} = {values}' for name, values in loaded.grid.items())}."]
    return [
        f"Arguments of {loaded.path} (--set NAME=VALUE):",
        *(f"  {name:{wide[0]}}  {kind:{wide[1]}}  {default}" for name, kind, default in rows),
        *(grid if loaded.grid else []),
    ]


def run(
    file: str, given: Sequence[str], *, out: Path | None, seed: int | None, quiet: bool, runtime: Any
) -> Study:  # fmt: skip
    """Run a file, or its grid, and leave what was asked for."""
    loaded = load_file(file)
    settings: dict[str, Any] = dict(texts.pairs(given, "--set"))
    if seed is not None:
        if "seed" in settings:
            raise InvalidInput(f"--seed {seed} and --set seed={settings['seed']}: give one of them")
        settings["seed"] = seed
    if out is not None:
        _check_out(out)
    runs = grid_runs(loaded, settings)
    alone = len(runs) == 1
    say, bar = _voices(quiet)
    done = []
    for i, arguments in enumerate(runs):
        scenario = loaded.build(arguments)
        with loaded.blamed(FedsimError):
            if i == 0:
                say(*header.lines(loaded.name, scenario, runtime, runs))
            label = "" if alone else " ".join(f"{name}={arguments[name]}" for name in loaded.grid) + "  "
            with progress.shown(bar, scenario, label) as observers:
                result = simulate(
                    scenario, runtime=runtime, observers=observers, out=out if alone else None,
                    source=_source(loaded, arguments),
                )  # fmt: skip
        done.append((arguments, result))
    study = Study(loaded.name, tuple(done))
    say("", *(summary.lines(scenario, result) if alone else summary.table(study)))
    if out is not None and not alone:
        _save(study, out)
    picture = _picture(study, loaded, out)
    say(*([f"picture {picture}"] if picture else []), _next(study, out))
    return study


def _voices(quiet: bool) -> tuple[Any, Any]:
    """How to say a line, and the terminal for the bar; plain text wherever stdout is not a terminal."""
    if quiet:
        return (lambda *lines: None), None
    from rich.console import Console

    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, markup=False, emoji=False)

    def say(*lines: str) -> None:
        for line in lines:
            console.print(line, soft_wrap=True)

    return say, Console(stderr=True, force_terminal=sys.stderr.isatty())


def _source(file: ScenarioFile, arguments: dict[str, Any]) -> dict[str, Any]:
    """Where the scenario came from, for the manifest."""
    return {"path": str(file.path), "text": file.source, "arguments": {n: str(v) for n, v in arguments.items()}}


def _check_out(out: Path) -> None:
    """Refuse a folder that cannot be made before anything runs."""
    if os.path.lexists(out):
        raise InvalidInput(f"--out {out} already exists; choose another folder or remove it")
    check_writable(out)


def _save(study: Study, out: Path) -> None:
    """The runs of a grid are folders in one, named after their settings, all there or none."""
    with new_folder(out.absolute()) as folder:
        for settings, result in study.runs:
            result.save(folder / _folder_name(settings))


def _folder_name(settings: dict[str, Any]) -> str:
    name = ",".join(f"{key}={value}" for key, value in settings.items())
    return "".join(c if c.isalnum() or c in "=,.-+_" else "_" for c in name)


def _picture(study: Study, file: ScenarioFile, out: Path | None) -> Path | None:
    """The file's figure as PNG: in `out`, or here."""
    if file.figure is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    with file.blamed(InvalidInput):
        figure = file.figure(study)
        if not hasattr(figure, "savefig"):
            raise InvalidInput(
                f"{file.path}: figure() returned {type(figure).__name__}, not a matplotlib figure"
            )
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=150)
    path = (out or Path()) / f"{study.name}.png"
    write_atomic(path, png.getvalue())
    return path


def _next(study: Study, out: Path | None) -> str:
    if out is None:
        return "next: add --out DIR to keep samples, tables and manifest"
    first = out if len(study.runs) == 1 else out / _folder_name(study.runs[0][0])
    return f'next: fedsim.load("{first}") in Python, or any reader of Parquet'

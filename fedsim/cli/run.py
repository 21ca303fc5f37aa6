"""`fedsim run`: a scenario file from the header to the summary and the picture."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import progress
from fedsim import settings as texts
from fedsim.analysis import units
from fedsim.analysis.summary import lines as summed_up
from fedsim.cli import header
from fedsim.cli.stopping import stopping
from fedsim.cli.summary import table
from fedsim.errors import FedsimError, InvalidInput, RuntimeFailed, shown
from fedsim.protocols import Runtime
from fedsim.reproduce.figures import makes_claims
from fedsim.results import Result, load, write_atomic
from fedsim.results.atomic import new_folder
from fedsim.results.state import WHOLE, settle
from fedsim.run_folder import check_free, claimed, facts_of, leave_nothing
from fedsim.running import run as simulate
from fedsim.runtime.inline import Inline
from fedsim.runtime.ray import Ray
from fedsim.scenario import Scenario
from fedsim.scenario_file import ScenarioFile, from_origin, load_file
from fedsim.sweeps.study import Study, grid_runs

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINT_EVERY = "60s"  # unless told: a run that is killed loses a minute


def runtime_named(
    name: str, threads: int | None = None, address: str | None = None, hosts: int | None = None,
    each: int | None = None,
) -> Any:  # fmt: skip
    """The runtime that the words on the command line stand for; an option that would do nothing is refused."""
    if name not in ("inline", "ray"):
        raise InvalidInput(f"--runtime {shown(name)}: there is inline, ray")
    options = (
        {"--threads": threads}
        if name == "ray"
        else {"--address": address, "--hosts": hosts, "--clients-per-host": each}
    )
    for option, value in options.items():
        if value is not None:
            raise InvalidInput(f"{option} {shown(value)} means nothing to --runtime {name}; leave it out")
    return Ray(hosts, address, each) if name == "ray" else Inline(threads=threads)


def interval(text: str | None) -> int | str | None:
    """--checkpoint-every: rounds, or seconds as in 60s."""
    return int(text) if text is not None and re.fullmatch("[0-9]{1,18}", text) else text


def help_lines(file: str) -> list[str]:
    """The arguments of a file's `scenario()`: name, type, default."""
    loaded = load_file(file)
    rows = [
        (p.name, texts.spelled(p.annotation), "required" if p.required else repr(p.default)) for p in loaded.parameters
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
    file: str, given: Sequence[str], *, out: Path | None, seed: int | None, quiet: bool, runtime: Runtime,
    checkpoint_every: int | str | None = None, clock: str = "auto",
) -> Study:  # fmt: skip
    """Run a file, or its grid, and leave what was asked for."""
    loaded = load_file(file)
    settings: dict[str, Any] = dict(texts.pairs(given, "--set"))
    if seed is not None:
        if "seed" in settings:
            raise InvalidInput(f"--seed {seed} and --set seed={settings['seed']}: give one of them")
        settings["seed"] = seed
    if out is not None:
        check_free(out)  # before anything runs
    runs = grid_runs(loaded, settings)
    alone = len(runs) == 1
    kept = out is not None and alone
    if checkpoint_every is not None and not kept:
        raise InvalidInput(
            "--checkpoint-every needs --out and a single run; for a grid use fedsim sweep, which keeps its own"
        )
    every = CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every
    say, bar = voices(quiet)
    done = []
    # A grid's folder is taken before the first run, so that nobody else's result can be in its way at the end.
    with stopping() as stop, claimed(out) if out is not None and not alone else nullcontext() as folder:
        for i, arguments in enumerate(runs):
            scenario = loaded.build(arguments)
            if i == 0:
                with loaded.blamed(FedsimError):
                    say(*header.lines(loaded.name, scenario, runtime, runs))
            label = "" if alone else " ".join(f"{name}={arguments[name]}" for name in loaded.grid) + "  "
            options: dict[str, Any] = {"out": out, "checkpoint_every": every} if kept else {}
            options |= {"runtime": runtime, "stop": stop, "clock": clock}
            result = _watched(loaded, scenario, arguments, bar, label, **options)
            done.append((arguments, result))
        study = Study(loaded.name, tuple(done))
        say("", *(summed_up(result, units.width()) if alone else table(study, units.width())))
        if folder is not None:
            _save(study, folder)
    picture = None if makes_claims(loaded) else draw(study, loaded, out)
    say(*([f"picture {picture}"] if picture else []), _next(study, out))
    return study


def resume(folder: Path, *, quiet: bool, runtime: Runtime) -> None:
    """Go on with the run in a folder, from its own copy of the file; one that is whole is only summed up."""
    facts, whole = facts_of(folder)
    say, bar = voices(quiet)
    if whole:
        result = load(folder)
        say("", *summed_up(result, units.width()), *_resumed(result), f"next: fedsim report {folder}")
        return
    if facts.get("grid"):
        raise InvalidInput(f"{folder} is where a grid was being run, which starts anew: repeat its fedsim run command")
    loaded, settings = from_origin(facts.get("source") or {})
    scenario = loaded.build(settings)
    say(*header.lines(loaded.name, scenario, runtime, [settings]))
    with stopping() as stop:
        every = facts.get("checkpoint_every")
        result = _watched(
            loaded, scenario, settings, bar, "", runtime=runtime, stop=stop, out=folder, resume=True,
            checkpoint_every=every,
        )  # fmt: skip
    say("", *summed_up(result, units.width()), *_resumed(result))
    picture = None if makes_claims(loaded) else draw(Study(loaded.name, ((settings, result),)), loaded, folder)
    say(*([f"picture {picture}"] if picture else []), f"next: fedsim report {folder}")


def _resumed(result: Result) -> list[str]:
    note = result.manifest.get("resumed")
    return [f"! {note}"] if note else []


def _watched(
    file: ScenarioFile, scenario: Scenario, settings: dict[str, Any], bar: Console, label: str, **options: Any
) -> Result:  # fmt: skip
    """One run under a bar. A failure that left no checkpoint leaves no folder either."""
    try:
        with (
            _resumable(options.get("out")),
            file.blamed(FedsimError),
            progress.shown(bar, scenario.budget, label) as observers,
        ):
            return simulate(scenario, observers=observers, source=file.origin(settings), **options)
    except BaseException:
        if options.get("out") is not None:
            leave_nothing(options["out"])
        raise


@contextmanager
def _resumable(out: Path | None) -> Iterator[None]:
    """Where the machinery gave up and a checkpoint is there, say how to go on."""
    try:
        yield
    except RuntimeFailed as error:
        if out is None or not (out / "checkpoints").exists():
            raise
        raise RuntimeFailed(f"{error}: fedsim resume {out}") from error


def voices(quiet: bool) -> tuple[Any, Any]:
    """How to say a line, and the terminal for the bar; plain text wherever stdout is not a terminal."""
    if quiet:
        return (lambda *lines: None), None
    from rich.console import Console

    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, markup=False, emoji=False)

    def say(*lines: str) -> None:
        for line in lines:
            console.print(line, soft_wrap=True)

    return say, Console(stderr=True, force_terminal=sys.stderr.isatty())


def _save(study: Study, out: Path) -> None:
    """The runs of a grid are folders in one, named after their settings, all there or none."""
    with new_folder(out / WHOLE) as folder:
        for settings, result in study.runs:
            result.save(folder / _folder_name(settings))
    settle(out)


def _folder_name(settings: dict[str, Any]) -> str:
    name = ",".join(f"{key}={value}" for key, value in settings.items())
    return "".join(c if c.isalnum() or c in "=,.-+_" else "_" for c in name)


def draw(study: Study, file: ScenarioFile, out: Path | None) -> Path | None:
    """The file's figure as PNG: in `out`, or here."""
    png = file.picture(study)
    if png is None:
        return None
    path = (out or Path()) / f"{study.name}.png"
    write_atomic(path, png)
    return path


def _next(study: Study, out: Path | None) -> str:
    if out is None:
        return "next: add --out DIR to keep samples, tables and manifest"
    first = out if len(study.runs) == 1 else out / _folder_name(study.runs[0][0])
    return f'next: fedsim report {first}, or fedsim.load("{first}") in Python'

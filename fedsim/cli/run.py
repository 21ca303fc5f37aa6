"""`fedsim run`: a scenario file from the header to the summary and the picture.

What will run, before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import settings as texts
from fedsim import text as units
from fedsim.analysis.summary import lines as summed_up
from fedsim.cli.sweep import table
from fedsim.cli.terminal import stopping, voices
from fedsim.engine.message_sizes import reply_shape
from fedsim.errors import FedsimError, InvalidInput, RuntimeFailed
from fedsim.protocols import Describes, Runtime, as_algorithm, as_problem
from fedsim.reproduce.claims import makes_claims
from fedsim.results import Result, load, write_atomic
from fedsim.results.files import new_folder
from fedsim.results.folder import COMPLETE, publish
from fedsim.running import progress
from fedsim.running import run as simulate
from fedsim.running.folder import check_free, claimed, read_facts, remove_unfinished
from fedsim.runtime.inline import Inline
from fedsim.runtime.ray import Ray
from fedsim.scenario import Scenario
from fedsim.scenario_file import ScenarioFile, from_origin, load_file
from fedsim.sweeps.study import Study, grid_runs
from fedsim.text import called, many, policy, short_str, width, wrapped

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINT_EVERY = "60s"  # unless told: a run that is killed loses a minute


def runtime_named(
    name: str, threads: int | None = None, address: str | None = None, hosts: int | None = None,
    each: int | None = None,
) -> Any:  # fmt: skip
    """The runtime that the words on the command line stand for; an option that would do nothing is refused."""
    if name not in ("inline", "ray"):
        raise InvalidInput(f"--runtime {short_str(name)}: there is inline, ray")
    options = (
        {"--threads": threads}
        if name == "ray"
        else {"--address": address, "--hosts": hosts, "--clients-per-host": each}
    )
    for option, value in options.items():
        if value is not None:
            raise InvalidInput(f"{option} {short_str(value)} means nothing to --runtime {name}; leave it out")
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
    checkpoint_every: int | str | None = None, clock: str = "auto", timing_only: bool = False,
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
                    say(*lines(loaded.name, scenario, runtime, runs))
            label = "" if alone else " ".join(f"{name}={arguments[name]}" for name in loaded.grid) + "  "
            options: dict[str, Any] = {"out": out, "checkpoint_every": every} if kept else {}
            options |= {"runtime": runtime, "stop": stop, "clock": clock, "timing_only": timing_only}
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
    facts, whole = read_facts(folder)
    say, bar = voices(quiet)
    if whole:
        result = load(folder)
        say("", *summed_up(result, units.width()), *_resumed(result), f"next: fedsim report {folder}")
        return
    if facts.get("grid"):
        raise InvalidInput(f"{folder} is where a grid was being run, which starts anew: repeat its fedsim run command")
    loaded, settings = from_origin(facts.get("source") or {})
    scenario = loaded.build(settings)
    say(*lines(loaded.name, scenario, runtime, [settings]))
    with stopping() as stop:
        every = facts.get("checkpoint_every")
        result = _watched(
            loaded, scenario, settings, bar, "", runtime=runtime, stop=stop, out=folder, resume=True,
            checkpoint_every=every, timing_only=facts.get("timing_only", False),
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
            progress.progress_bar(bar, scenario.budget, label) as observers,
        ):
            return simulate(scenario, observers=observers, source=file.origin(settings), **options)
    except BaseException:
        if options.get("out") is not None:
            remove_unfinished(options["out"])
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


def _save(study: Study, out: Path) -> None:
    """The runs of a grid are folders in one, named after their settings, all there or none."""
    with new_folder(out / COMPLETE) as folder:
        for settings, result in study.runs:
            result.save(folder / _folder_name(settings))
    publish(out)


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


WIDTH = 11


def lines(name: str, scenario: Scenario, runtime: Runtime, runs: list[dict[str, Any]]) -> list[str]:
    """The header of one run, or of several that differ in the settings of a grid."""
    problem = scenario.problem
    title = (
        f"{name}: {type(scenario.algorithm).__name__}, {type(problem).__name__} d={problem.dim:,}, "
        f"{many(problem.clients, 'client')}, {many(len(scenario.replica_numbers), 'replica')}, "
        f"seed {scenario.seed}, {_described(runtime, 'inline')}"
    )
    facts = {
        "algorithm": called(scenario.algorithm),
        "network": _described(scenario.network, "none: messages take no time"),
        "devices": _described(scenario.devices, "none: computing takes no time, and nobody drops out"),
        "policy": f"{policy(scenario.participation)}     wire  {_wire(scenario)}",
        "budget": called(scenario.budget),
        **_settings(runs),
    }
    lines = [title, *(f"{key:{WIDTH}}{text}" for key, text in facts.items())]
    return [piece for line in lines for piece in wrapped(line, width(), indent=WIDTH)]


def _settings(runs: list[dict[str, Any]]) -> dict[str, str]:
    """What was set from outside, and in what several runs differ."""
    values = {name: list(dict.fromkeys(str(settings[name]) for settings in runs)) for name in runs[0]}
    fixed = [f"{name}={texts[0]}" for name, texts in values.items() if len(texts) == 1]
    axes = [f"{name} = {', '.join(texts)}" for name, texts in values.items() if len(texts) > 1]
    rows = {"set": ", ".join(fixed)} if fixed else {}
    return rows | ({"runs": f"{len(runs)}: {'; '.join(axes)} (the first is shown above)"} if axes else {})


def _described(part: object, nothing: str) -> str:
    if part is None:
        return nothing
    return str(part.describe()) if isinstance(part, Describes) else called(part)


def _wire(scenario: Scenario) -> str:
    import numpy as np

    algorithm, problem = as_algorithm(scenario.algorithm), as_problem(scenario.problem)
    state = algorithm.init(scenario.problem, scenario.start)
    size = reply_shape(algorithm, problem, state, np.dtype(scenario.dtype), 0).bits
    return f"{scenario.dtype}, " + ("bits up depend on the values" if size is None else f"{size:,} bits up")

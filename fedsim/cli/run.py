"""`fedsim run` and `fedsim resume`: the header, the run, the summary and the figure."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import text
from fedsim.analysis.summary import lines as summary_lines
from fedsim.cli.sweep import table
from fedsim.cli.terminal import heartbeat, outputs, stop_signals
from fedsim.engine.message_sizes import reply_shape
from fedsim.errors import FedsimError, InvalidInput
from fedsim.protocols import Describes, Executable, Observer, Runtime, as_algorithm, as_problem
from fedsim.reproduce.figures import is_figure
from fedsim.results import Result, load, write_atomic
from fedsim.results.files import new_folder
from fedsim.results.folder import COMPLETE, clean, publish
from fedsim.running import progress
from fedsim.running import run as simulate
from fedsim.running.folder import check_free, claimed, read_facts, remove_unfinished
from fedsim.runtime.inline import Inline
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.cluster import held_open
from fedsim.scenario import Scenario
from fedsim.scenario_file import ScenarioFile, from_origin, load_file
from fedsim.settings import pairs, spelled
from fedsim.sweeps.study import Study, grid_runs

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINT_EVERY = "60s"  # a killed run loses a minute at most


def runtime_from(
    name: str, threads: int | None = None, address: str | None = None, hosts: int | None = None,
    clients_per_host: int | None = None, num_cpus_per_host: float | None = None,
) -> Any:  # fmt: skip
    """Return the runtime that the options name; refuse an option that it does not use."""
    if name not in ("inline", "ray"):
        raise InvalidInput(f"--runtime {text.short_str(name)}: choose inline or ray")
    unused = {
        "--address": address, "--hosts": hosts, "--clients-per-host": clients_per_host,
        "--num-cpus-per-host": num_cpus_per_host,
    }  # fmt: skip
    for option, value in ({"--threads": threads} if name == "ray" else unused).items():
        if value is not None:
            raise InvalidInput(f"{option} {text.short_str(value)} has no effect with --runtime {name}; remove it")
    if name == "inline":
        return Inline(threads=threads)
    cpus = {} if num_cpus_per_host is None else {"num_cpus_per_host": num_cpus_per_host}
    return Ray(hosts, address, clients_per_host, **cpus)


def interval(value: str | None) -> int | str | None:
    """Return --checkpoint-every as rounds, or as text for seconds such as 60s."""
    return int(value) if value is not None and re.fullmatch("[0-9]{1,18}", value) else value


def help_lines(file: str) -> list[str]:
    """Return the arguments of a file's `scenario()`: name, type, default."""
    loaded = load_file(file)
    rows = [(p.name, spelled(p.annotation), "required" if p.required else repr(p.default)) for p in loaded.parameters]
    if not rows:
        return [f"{loaded.path} has no arguments."]
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    grid = [f"Grid: {', '.join(f'{name} = {values}' for name, values in loaded.grid.items())}."]
    return [
        f"Arguments of {loaded.path} (--set NAME=VALUE):",
        *(f"  {name:{widths[0]}}  {kind:{widths[1]}}  {default}" for name, kind, default in rows),
        *(grid if loaded.grid else []),
    ]


def run(
    file: str, given: Sequence[str], *, out: Path | None, seed: int | None, quiet: bool, runtime: Runtime,
    checkpoint_every: int | str | None = None, clock: str = "auto", timing_only: bool = False,
    or_resume: bool = False,
) -> Study:  # fmt: skip
    """Run a scenario file or its grid, print the summary and save the results in `out`.

    With `or_resume` a single run that `out` holds is resumed, or only shown if it is complete.
    """
    loaded = load_file(file)
    settings: dict[str, Any] = dict(pairs(given, "--set"))
    if seed is not None:
        if "seed" in settings:
            raise InvalidInput(f"--seed {seed} and --set seed={settings['seed']}: give one of them")
        settings["seed"] = seed
    if out is not None:
        check_free(out, or_resume)  # before any work
    runs = grid_runs(loaded, settings)
    single = len(runs) == 1
    saved = out is not None and single
    for option, given_it in (("--checkpoint-every", checkpoint_every is not None), ("--or-resume", or_resume)):
        if given_it and not saved:
            raise InvalidInput(f"{option} needs --out and a single run; use fedsim sweep for a grid")
    every = CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every
    write, console = outputs(quiet)
    done = []
    # A grid's folder is claimed before the first run, so that no other process can write into it.
    folder_of_all = claimed(out) if out is not None and not single else nullcontext()
    with stop_signals() as stop, held_open(), folder_of_all as folder:
        for i, arguments in enumerate(runs):
            scenario = loaded.build(arguments)
            if i == 0:
                with loaded.blamed(FedsimError):
                    write(*header(loaded.name, scenario, runtime, runs, clock))
            label = "" if single else " ".join(f"{name}={arguments[name]}" for name in loaded.grid) + "  "
            options: dict[str, Any] = {"out": out, "checkpoint_every": every, "resume": or_resume} if saved else {}
            options |= {"runtime": runtime, "stop": stop, "clock": clock, "timing_only": timing_only}
            result = _observed(loaded, scenario, arguments, console, write, label, **options)
            done.append((arguments, result))
        study = Study(loaded.name, tuple(done))
        lines = [*summary_lines(result, text.width()), *_resumed(result)] if single else table(study, text.width())
        write("", *lines)
        if folder is not None:
            _save(study, folder)
    figure = None if is_figure(loaded) or timing_only else draw(study, loaded, out)
    write(*([f"figure: {figure}"] if figure else []), _next(study, out))
    return study


def resume(folder: Path, *, quiet: bool, runtime: Runtime) -> None:
    """Resume the run in a folder from its copy of the scenario file; of a complete run, print the summary."""
    facts, complete = read_facts(folder)
    write, console = outputs(quiet)
    if complete:
        clean(folder)
        result = load(folder)
        write("", *summary_lines(result, text.width()), *_resumed(result), f"next: fedsim report {folder}")
        return
    if facts.get("grid"):
        raise InvalidInput(f"{folder} has an unfinished grid, which cannot be resumed; repeat its fedsim run command")
    if "flower" in (facts.get("source") or {}):
        from fedsim.cli import flower

        flower.resume(folder, facts, quiet=quiet, runtime=runtime)
        return
    loaded, settings = from_origin(facts.get("source") or {})
    scenario = loaded.build(settings)
    write(*header(loaded.name, scenario, runtime, [settings], "as before"))
    with stop_signals() as stop:
        result = _observed(
            loaded, scenario, settings, console, write, "", runtime=runtime, stop=stop, out=folder, resume=True,
            checkpoint_every=facts.get("checkpoint_every"), timing_only=facts.get("timing_only", False),
        )  # fmt: skip
    write("", *summary_lines(result, text.width()), *_resumed(result))
    figure = None if is_figure(loaded) else draw(Study(loaded.name, ((settings, result),)), loaded, folder)
    write(*([f"figure: {figure}"] if figure else []), f"next: fedsim report {folder}")


def _resumed(result: Result) -> list[str]:
    note = result.manifest.get("resumed")
    return [f"warning: {note}"] if note else []


def _observed(
    file: ScenarioFile, scenario: Scenario, settings: dict[str, Any], console: Console, write: Callable[..., None],
    label: str, **options: Any,
) -> Result:  # fmt: skip
    with file.blamed(FedsimError):
        return observed(scenario, console, write, label, source=file.origin(settings), **options)


def observed(scenario: Any, console: Console, write: Callable[..., None], label: str, **options: Any) -> Result:
    """Run with a progress bar or log lines. A failed run without a checkpoint leaves no folder."""
    try:
        bar, log = progress.progress_bar(console, scenario.budget, label), _log(scenario, write, label, console)
        with bar as bars, log as lines:
            return simulate(scenario, observers=(*bars, *lines), **options)
    except BaseException:
        if options.get("out") is not None:
            remove_unfinished(options["out"])
        raise


@contextmanager
def _log(
    scenario: Scenario, write: Callable[..., None], label: str, console: Console
) -> Iterator[tuple[Observer, ...]]:
    """Yield an observer whose latest line is written once a minute if stdout is not a terminal."""
    if console is None or sys.stdout.isatty():
        yield ()
        return
    latest = [f"{label}compiling"]

    def update(description: str, facts: str, **_: object) -> None:
        latest[0] = ", ".join([description, *facts.split("  ")]).replace(", up ", ", uplink ")

    with heartbeat(write, lambda: latest[0]):
        yield (progress.ProgressLine(scenario.budget, update, label, every_s=progress.UPDATE_S),)


def _save(study: Study, out: Path) -> None:
    """Save the runs of a grid in sub-folders named after their settings; publish all of them at once."""
    with new_folder(out / COMPLETE) as folder:
        for settings, result in study.runs:
            result.save(folder / _folder_name(settings))
    publish(out)


def _folder_name(settings: dict[str, Any]) -> str:
    name = ",".join(f"{key}={value}" for key, value in settings.items())
    return "".join(c if c.isalnum() or c in "=,.-+_" else "_" for c in name)


def draw(study: Study, file: ScenarioFile, out: Path | None) -> Path | None:
    """Save the file's figure as PNG in `out` or in the current folder; return None if it has no figure."""
    png = file.picture(study)
    if png is None:
        return None
    path = (out or Path()) / f"{study.name}.png"
    write_atomic(path, png)
    return path


def _next(study: Study, out: Path | None) -> str:
    if out is None:
        return "next: add --out DIR to save samples, tables and manifest"
    first = out if len(study.runs) == 1 else out / _folder_name(study.runs[0][0])
    return f'next: fedsim report {first}, or fedsim.load("{first}") in Python'


LABEL = 11  # width


def header(name: str, scenario: Scenario, runtime: Runtime, runs: list[dict[str, Any]], clock: str) -> list[str]:
    """Return the lines before a run; of a grid, its first scenario and the axes."""
    if isinstance(scenario, Executable):
        title, facts = scenario.header()
        return _wrapped(f"{name}: {title}", facts | _settings(runs))
    problem = scenario.problem
    title = (
        f"{name}: {type(scenario.algorithm).__name__}, {type(problem).__name__} d={problem.dim:,}, "
        f"{text.plural(problem.clients, 'client')}, {text.plural(len(scenario.replica_numbers), 'replica')}, "
        f"seed {scenario.seed}, {_described(runtime, 'inline')}"
    )
    parts = {"network": scenario.network, "compute": scenario.devices}
    counted = " + ".join(part for part, value in parts.items() if value is not None) or "no time passes"
    facts = {
        "algorithm": text.call_of(scenario.algorithm),
        "network": _described(scenario.network, "none: messages take no time"),
        "devices": _described(scenario.devices, "none: computing takes no time and no client drops out"),
        "policy": f"{text.policy(scenario.participation)}     wire  {_wire(scenario)}",
        "budget": text.call_of(scenario.budget),
        **_settings(runs),
        "clock": f"{clock} ({counted})",
    }
    return _wrapped(title, facts)


def _wrapped(title: str, facts: dict[str, str]) -> list[str]:
    lines = [title, *(f"{key:{LABEL}}{fact}" for key, fact in facts.items())]
    return [piece for line in lines for piece in text.wrapped(line, text.width(), indent=LABEL)]


def _settings(runs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the given settings and the axes of a grid."""
    values = {name: list(dict.fromkeys(str(settings[name]) for settings in runs)) for name in runs[0]}
    fixed = [f"{name}={own[0]}" for name, own in values.items() if len(own) == 1]
    axes = [f"{name} = {', '.join(own)}" for name, own in values.items() if len(own) > 1]
    rows = {"set": ", ".join(fixed)} if fixed else {}
    return rows | ({"runs": f"{len(runs)}: {'; '.join(axes)} (the first is shown above)"} if axes else {})


def _described(part: object, absent: str) -> str:
    if part is None:
        return absent
    return str(part.describe()) if isinstance(part, Describes) else text.call_of(part)


def _wire(scenario: Scenario) -> str:
    import numpy as np

    algorithm, problem = as_algorithm(scenario.algorithm), as_problem(scenario.problem)
    state = algorithm.init(scenario.problem, scenario.start)
    size = reply_shape(algorithm, problem, state, np.dtype(scenario.dtype), 1).bits
    return f"{scenario.dtype}, " + ("bits up depend on the values" if size is None else f"{size:,} bits up")

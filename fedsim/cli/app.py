"""The commands and their options; what went wrong becomes one sentence and an exit code.

0    all went well
1    a run failed: it went non-finite, a client's code raised, the machinery gave up
2    a mistake in what was asked for
130  interrupted
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsim import renamed
from fedsim.checks import path_of
from fedsim.cli.terminal import warnings_last
from fedsim.errors import FedsimError, Interrupted, InvalidInput
from fedsim.text import short_str

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Federated samplers and optimisers, really run, over a simulated network of slow and flaky clients.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# The root of what typer raises about usage; it is click's own class or typer's copy of it, by version.
_Usage: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


_REMEDIES = {
    errno.EMFILE: "raise the limit with ulimit -n, or ask for fewer --jobs or --threads",
    errno.EAGAIN: "raise the limit with ulimit -u, or ask for fewer --jobs or --threads",
    errno.ENOSPC: "make room on the disk, then resume",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EACCES: "give a path that may be read and written",
}


def call(argv: Sequence[str]) -> int:
    """Run the command line `argv` and return the exit code; errors go to stderr in one sentence."""
    with warnings_last() as heard:
        code = _call(argv)
        heard.failed = code not in (0, INTERRUPTED)
    return code


def _call(argv: Sequence[str]) -> int:
    try:
        os.getcwd()
    except OSError:
        return _failed("the current folder is gone; change to one that exists", MISTAKE)
    try:
        code = int(app(list(argv) or ["--help"], prog_name="fedsim", standalone_mode=False) or 0)
        return _failed("interrupted", code) if code == INTERRUPTED else code  # as newer versions of typer report it
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED)
    except _Usage as error:
        if removed := renamed.sentence(f"fedsim {argv[0]}"):
            return _failed(removed, MISTAKE)
        return _failed(f"{short_str(error.format_message(), 400).rstrip('.')}; see fedsim --help", MISTAKE)
    except InvalidInput as error:
        return _failed(str(error), MISTAKE)
    except Interrupted as error:
        return _failed(str(error), INTERRUPTED)
    except FedsimError as error:
        return _failed(str(error), FAILED)
    except MemoryError:
        return _failed("out of memory; ask for fewer replicas, clients or rounds at a time", FAILED)
    except OSError as error:
        where = f"{short_str(error.filename)}: " if error.filename is not None else ""
        remedy = _REMEDIES.get(error.errno or 0, "look at the file and the disk, and try again")
        return _failed(f"{where}{error.strerror or short_str(error)}; {remedy}", FAILED)


def _version(asked: bool) -> None:
    if asked:
        from fedsim import __version__

        typer.echo(f"fedsim {__version__}")
        raise typer.Exit


@app.callback()
def fedsim(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Say it.")] = False,
) -> None:
    pass  # without it typer would make the only command the whole program


File = Annotated[
    str | None,
    typer.Argument(metavar="FILE", show_default=False, help="A scenario file, or the name of a shipped one."),
]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="An argument of scenario(), or a field: budget.rounds=50."),
]


def _path(value: Path | None) -> Path | None:
    """A path as the system can know it, or one sentence."""
    return None if value is None else path_of("path", value)


Out = Annotated[
    Path | None,
    typer.Option("--out", callback=_path, metavar="DIR", help="Leave results and picture in this new folder."),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Short for --set seed=N.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing unless it fails.")]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="Default: one per core.")]
Runtime = Annotated[str, typer.Option("--runtime", metavar="NAME", help="Where jobs run: inline or ray.")]
Address = Annotated[str | None, typer.Option("--address", metavar="A", help="Ray: a cluster to join.")]
Hosts = Annotated[int | None, typer.Option("--hosts", metavar="N", help="Ray: client hosts.")]
Each = Annotated[int | None, typer.Option("--clients-per-host", metavar="N", help="Ray: 1 is an actor per client.")]
Every = Annotated[
    str | None, typer.Option("--checkpoint-every", metavar="N", help="Rounds, or seconds: 60s (the default).")
]
Help = Annotated[bool, typer.Option("--help", help="Show this, and FILE's own arguments.")]
SweptFile = Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="As for fedsim run.")]
SweepFolder = Annotated[
    Path, typer.Option("--out", callback=_path, metavar="DIR", help="The sweep's folder; shards share it.")
]
Grid = Annotated[list[str], typer.Option("--grid", metavar="NAME=VALUES", help="An axis: 1,10,100 or 0:5.")]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", help="Runs at a time; default one per core.")]
Shard = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Every N-th run only, from I on.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the sweep in DIR.")]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Go on, and try failed runs again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Time one run; say count, time and disk.")]
Clock = Annotated[str, typer.Option("--clock", metavar="C", help="The virtual clock: auto, simpy or compiled.")]
TimingOnly = Annotated[bool, typer.Option("--timing-only", help="Run the timeline without learning.")]
Folder = Annotated[Path, typer.Argument(callback=_path, metavar="DIR", show_default=False, help="The folder of a run.")]


@app.command(add_help_option=False)
def run(
    context: typer.Context, file: File = None, settings: Settings = [], out: Out = None, seed: Seed = None,  # noqa: B006
    quiet: Quiet = False, threads: Threads = None, runtime: Runtime = "inline", address: Address = None,
    hosts: Hosts = None, clients_per_host: Each = None, checkpoint_every: Every = None, clock: Clock = "auto",
    timing_only: TimingOnly = False, help: Help = False,
) -> None:  # fmt: skip
    """Run a scenario file, or every combination of its grid."""
    from fedsim.cli import run as command

    if help:
        typer.echo(context.get_help())
        if file is not None:
            typer.echo("\n".join(["", *command.help_lines(file)]))
    elif file is None:
        raise InvalidInput("run needs a FILE, such as fedsim run quickstart; see fedsim run --help")
    else:
        where = command.runtime_named(runtime, threads, address, hosts, clients_per_host)
        every = command.interval(checkpoint_every)
        command.run(
            file, settings, out=out, seed=seed, quiet=quiet, runtime=where, checkpoint_every=every, clock=clock,
            timing_only=timing_only,
        )  # fmt: skip


@app.command()
def resume(
    folder: Folder, quiet: Quiet = False, threads: Threads = None, runtime: Runtime = "inline",
    address: Address = None, hosts: Hosts = None, clients_per_host: Each = None,
) -> None:  # fmt: skip
    """Go on with an interrupted run, to the same bits as if it had never stopped."""
    from fedsim.cli import run as command

    where = command.runtime_named(runtime, threads, address, hosts, clients_per_host)
    command.resume(folder, quiet=quiet, runtime=where)


@app.command()
def sweep(
    file: SweptFile, out: SweepFolder, grid: Grid = [], settings: Settings = [], jobs: Jobs = None,  # noqa: B006
    shard: Shard = None, resume: Resume = False, retry_failed: Retry = False, dry_run: DryRun = False,
    quiet: Quiet = False, runtime: Runtime = "inline", address: Address = None,
) -> None:  # fmt: skip
    """Run a scenario file under every combination of a grid, each into a folder of its own."""
    from fedsim.cli.run import runtime_named
    from fedsim.cli.sweep import sweep as command

    code = command(
        file, grid, settings, out=out, runtime=runtime_named(runtime, address=address), shard=shard, jobs=jobs,
        resume=resume, retry_failed=retry_failed, dry_run=dry_run, quiet=quiet,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def tune(
    file: SweptFile,
    goal: Annotated[str, typer.Option("--goal", metavar="GOAL", help="A metric and a level: 'accuracy >= .83'.")],
    grid: Annotated[list[str], typer.Option("--grid", metavar="NAME=VALUES", help="A parameter: 1,10,100 or 0:5.")],
    minimize: Annotated[
        str, typer.Option("--minimize", metavar="NAME", help="Resource: seconds, uplink_bits, ... or epsilon.")
    ] = "seconds",
    limits: Annotated[list[str], typer.Option("--limit", "--limits", metavar="NAME=LIMIT", help="seconds=3600")] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Seeds of the best settings.")] = 9,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder of the runs, to reuse them.")] = None,
    settings: Settings = [], jobs: Jobs = None, quiet: Quiet = False, runtime: Runtime = "inline",  # noqa: B006
    address: Address = None,
) -> None:  # fmt: skip
    """Search the settings that reach a goal at the lowest cost."""
    from fedsim.cli.run import runtime_named
    from fedsim.cli.sweep import tune as command

    where = runtime_named(runtime, address=address)
    code = command(
        file, grid, goal, minimize, limits, seeds=seeds, out=out, given=settings, jobs=jobs, quiet=quiet, runtime=where
    )
    raise typer.Exit(code)


@app.command()
def status(
    folder: Annotated[
        Path, typer.Argument(callback=_path, metavar="DIR", show_default=False, help="A sweep's folder.")
    ],
) -> None:
    """Say how far a sweep is, and what failed in it."""
    from fedsim.cli.sweep import status as command

    lines, code = command(folder)
    typer.echo("\n".join(lines))
    raise typer.Exit(code)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", show_default=False, help="Runs or sweeps.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", callback=_path, help="The page (default DIR/report.html).")
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="FILE", help="Draw this scenario file's figure() anew, too.")
    ] = None,
) -> None:
    """Write one page about a run, a sweep or several to compare. Nothing from DIR is executed."""
    from fedsim.cli.report import report as command

    typer.echo(f"report  {command([folder for folder in map(_path, folders) if folder is not None], figure, out)}")


@app.command()
def reproduce(
    asked: Annotated[
        str | None, typer.Argument(metavar="[PAPER[/FIGURE]]", show_default=False, help="Such as fa-ld/fig1a.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small settings, the claims' direction (default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's settings, where two cores can do them.")] = False,
    jobs: Jobs = None, quiet: Quiet = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="For runs, claims.json and a page.")] = None,
) -> None:  # fmt: skip
    """Run the papers' figures and say of each published claim whether it held."""
    from fedsim.cli.report import reproduce as command

    raise typer.Exit(command(asked, quick=quick, full=full, jobs=jobs, out=out, quiet=quiet))


@app.command("list")
def list_() -> None:
    """List scenarios, algorithms, problems, policies, devices, networks, codecs and metrics."""
    from fedsim.cli.listing import lines
    from fedsim.text import width

    typer.echo("\n".join(lines(width())))


@app.command()
def explain(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", show_default=False, help="Such as job, or A5.")
    ] = None,
) -> None:
    """Explain job, replies, view, combinations, or a code such as A5 that a docstring mentions."""
    from fedsim.docs import explain as page

    typer.echo(page(topic))


def _failed(sentence: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"fedsim: {sentence}", file=sys.stderr)
    return code

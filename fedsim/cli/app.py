"""Commands, options and exit codes. Errors become one sentence on stderr and an exit code.

0    success
1    a run failed: it became non-finite, a client's code raised an exception, or the runtime gave up
2    invalid input
3    fedsim status: a run is running
4    fedsim status: a run is to do, and none is running
130  interrupted
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsim import renamed
from fedsim.checks import check_path, users_traceback
from fedsim.cli.terminal import held_warnings, print_error, print_lines
from fedsim.errors import FedsimError, Interrupted, InvalidInput
from fedsim.text import short_str

FAILED, INVALID, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Simulate federated learning and federated MCMC on realistic networks.",
    epilog="Start with: fedsim run quickstart. Manual: fedsim explain first-run.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# The base class of typer's usage errors: click's own class or typer's copy of it, depending on the version.
_Usage: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


_REMEDIES = {
    errno.EMFILE: "raise the limit with ulimit -n, or use fewer --jobs or --threads",
    errno.EAGAIN: "raise the limit with ulimit -u, or use fewer --jobs or --threads",
    errno.ENOSPC: "free disk space, then resume",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.EACCES: "use a path with read and write permission",
}


def call(argv: Sequence[str]) -> int:
    """Run the command line `argv` and return the exit code; print an error as one sentence on stderr."""
    with held_warnings() as held:
        code = _call(argv)
        held.failed = code not in (0, INTERRUPTED)
    return code


def _call(argv: Sequence[str]) -> int:
    try:
        code = int(app(list(argv) or ["--help"], prog_name="fedsim", standalone_mode=False) or 0)
        return _failed("interrupted", code) if code == INTERRUPTED else code  # newer versions of typer return it
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED)
    except _Usage as error:
        if removed := renamed.sentence(f"fedsim {argv[0]}"):
            return _failed(removed, INVALID)
        return _failed(f"{short_str(error.format_message(), 400).rstrip('.')}; see fedsim --help", INVALID)
    except InvalidInput as error:
        return _failed(str(error), INVALID, users_traceback(error))
    except Interrupted as error:
        return _failed(str(error), INTERRUPTED)
    except FedsimError as error:
        return _failed(str(error), FAILED, users_traceback(error))
    except MemoryError:
        return _failed("out of memory; use fewer replicas, clients or rounds", FAILED)
    except OSError as error:
        where = f"{short_str(error.filename)}: " if error.filename is not None else ""
        remedy = _REMEDIES.get(error.errno or 0, "check the file and the disk, and try again")
        return _failed(f"{where}{error.strerror or short_str(error)}; {remedy}", FAILED)


def _version(requested: bool) -> None:
    if requested:
        from fedsim import __version__

        print_lines(f"fedsim {__version__}")
        raise typer.Exit


@app.callback()
def fedsim(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    pass  # the callback gives the program its own options


def _path(value: Path | None) -> Path | None:
    """Return a valid path, or raise InvalidInput."""
    return None if value is None else check_path("path", value)


_FILE = typer.Argument(metavar="FILE", show_default=False, help="Scenario file, or the name of a shipped scenario.")
File = Annotated[str | None, _FILE]
NeededFile = Annotated[str, _FILE]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="Argument of scenario(), or a field such as budget.rounds=50."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", callback=_path, metavar="DIR", help="Folder for results and figures."),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Same as --set seed=N.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="Threads. [default: one per core]")]
Runtime = Annotated[
    str, typer.Option("--runtime", metavar="NAME", help="Where clients compute: inline (threads) or ray.")
]
Address = Annotated[str | None, typer.Option("--address", metavar="A", help="Address of a Ray cluster to join.")]
Hosts = Annotated[int | None, typer.Option("--hosts", metavar="N", help="Number of client hosts on Ray.")]
ClientsPerHost = Annotated[
    int | None, typer.Option("--clients-per-host", metavar="N", help="On Ray; 1 starts an actor per client.")
]
CpusPerHost = Annotated[
    float | None, typer.Option("--num-cpus-per-host", metavar="N", help="CPUs of each client host. [default: 1]")
]
OrResume = Annotated[
    bool, typer.Option("--or-resume", help="Resume the run in DIR if there is one; show it if it is complete.")
]
Every = Annotated[
    str | None,
    typer.Option("--checkpoint-every", metavar="N", help="Rounds, or seconds as in 60s. [default: 60s]"),
]
Help = Annotated[bool, typer.Option("--help", help="Show this message and the arguments of FILE, and exit.")]
SweepFolder = Annotated[
    Path, typer.Option("--out", callback=_path, metavar="DIR", help="Folder of the sweep, shared by all shards.")
]
Grid = Annotated[
    list[str], typer.Option("--grid", metavar="NAME=VALUES", help="Values of a parameter: 1,10,100 or 0:5.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", help="Parallel runs. [default: one per core]")]
Shard = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Run every N-th run, from run I on.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the sweep in DIR.")]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Resume the sweep and repeat failed runs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Time one run, print the estimate and exit.")]
Clock = Annotated[str, typer.Option("--clock", metavar="C", help="Virtual clock: auto, simpy or compiled.")]
TimingOnly = Annotated[bool, typer.Option("--timing-only", help="Run the timeline without learning.")]
Folder = Annotated[Path, typer.Argument(callback=_path, metavar="DIR", show_default=False, help="Folder of a run.")]


@app.command(add_help_option=False, epilog="Next: fedsim report DIR, fedsim list. Manual: fedsim explain first-run.")
def run(
    context: typer.Context, file: File = None, settings: Settings = [], out: Out = None, seed: Seed = None,  # noqa: B006
    quiet: Quiet = False, threads: Threads = None, runtime: Runtime = "inline", address: Address = None,
    hosts: Hosts = None, clients_per_host: ClientsPerHost = None, num_cpus_per_host: CpusPerHost = None,
    checkpoint_every: Every = None, or_resume: OrResume = False, clock: Clock = "auto",
    timing_only: TimingOnly = False, help: Help = False,
) -> None:  # fmt: skip
    """Run a scenario file, with the grid and figure that it defines."""
    from fedsim.cli import run as command

    if help:
        print_lines(context.get_help())
        if file is not None:
            print_lines("\n".join(["", *command.help_lines(file)]))
    elif file is None:
        raise InvalidInput("run needs a FILE, such as fedsim run quickstart; see fedsim run --help")
    else:
        command.run(
            file, settings, out=out, seed=seed, quiet=quiet,
            runtime=command.runtime_from(runtime, threads, address, hosts, clients_per_host, num_cpus_per_host),
            checkpoint_every=command.interval(checkpoint_every), clock=clock, timing_only=timing_only,
            or_resume=or_resume,
        )  # fmt: skip


AppFolder = Annotated[str, typer.Argument(metavar="PATH", show_default=False, help="The folder of a Flower app.")]
Nodes = Annotated[int | None, typer.Option("--nodes", metavar="N", help="Default: the app's num-supernodes.")]
GraphML = Annotated[
    Path | None,
    typer.Option("--network", callback=_path, metavar="FILE", help="GraphML; default: no time to transfer."),
]
Table = Annotated[
    Path | None,
    typer.Option(
        "--devices", callback=_path, metavar="FILE", help="CSV, the columns of devices.table; default: instant."
    ),
]
AppSettings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="A setting of the app: num-server-rounds=20.")
]
AppSeed = Annotated[int, typer.Option("--seed", metavar="N", help="Of all random numbers.")]
AppOut = Annotated[
    Path | None, typer.Option("--out", callback=_path, metavar="DIR", help="Save the result in this new folder.")
]


@app.command(epilog="Next: fedsim report DIR. Manual: fedsim explain your-flower-app.")
def flower(
    path: AppFolder, nodes: Nodes = None, network: GraphML = None, devices: Table = None,
    settings: AppSettings = [], seed: AppSeed = 0, out: AppOut = None, quiet: Quiet = False,  # noqa: B006
    checkpoint_every: Every = None, runtime: Runtime = "inline", threads: Threads = None, address: Address = None,
    hosts: Hosts = None, num_cpus_per_host: CpusPerHost = None,
) -> None:  # fmt: skip
    """Run a Flower app, unmodified, on the virtual clock."""
    from fedsim.cli import flower as command
    from fedsim.cli.run import interval, runtime_from

    arguments = command.Arguments(path, nodes, network, devices, tuple(settings), seed)
    where = runtime_from(runtime, threads, address, hosts, num_cpus_per_host=num_cpus_per_host)
    every = interval(checkpoint_every)
    command.run(arguments, out=out, quiet=quiet, runtime=where, checkpoint_every=every)


@app.command(epilog="Next: fedsim report DIR. Manual: fedsim explain sweeps.")
def resume(
    folder: Folder, quiet: Quiet = False, threads: Threads = None, runtime: Runtime = "inline",
    address: Address = None, hosts: Hosts = None, clients_per_host: ClientsPerHost = None,
    num_cpus_per_host: CpusPerHost = None,
) -> None:  # fmt: skip
    """Resume an interrupted run. Its result is bit-identical."""
    from fedsim.cli import run as command

    where = command.runtime_from(runtime, threads, address, hosts, clients_per_host, num_cpus_per_host)
    command.resume(folder, quiet=quiet, runtime=where)


@app.command(epilog="Next: fedsim status DIR, fedsim report DIR. Manual: fedsim explain sweeps.")
def sweep(
    file: NeededFile, out: SweepFolder, grid: Grid = [], settings: Settings = [], jobs: Jobs = None,  # noqa: B006
    shard: Shard = None, resume: Resume = False, retry_failed: Retry = False, dry_run: DryRun = False,
    quiet: Quiet = False, runtime: Runtime = "inline", address: Address = None,
) -> None:  # fmt: skip
    """Run a grid in parallel, each combination in its own folder."""
    from fedsim.cli.run import runtime_from
    from fedsim.cli.sweep import sweep as command

    code = command(
        file, grid, settings, out=out, runtime=runtime_from(runtime, address=address), shard=shard, jobs=jobs,
        resume=resume, retry_failed=retry_failed, dry_run=dry_run, quiet=quiet,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command(epilog="Next: fedsim report DIR. Manual: fedsim explain tuning.")
def tune(
    file: NeededFile,
    goal: Annotated[str, typer.Option("--goal", metavar="GOAL", help="Metric and level, such as 'accuracy >= .83'.")],
    grid: Grid,
    minimize: Annotated[
        str,
        typer.Option(
            "--minimize", metavar="NAME", help="Resource to minimize: seconds, uplink_bits, total_bits or epsilon."
        ),
    ] = "seconds",
    limit: Annotated[
        list[str], typer.Option("--limit", metavar="NAME=VALUE", help="Limit on a resource, such as seconds=3600.")
    ] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Number of seeds for the best settings.")] = 9,
    out: Out = None,
    settings: Settings = [], jobs: Jobs = None, quiet: Quiet = False, runtime: Runtime = "inline",  # noqa: B006
    address: Address = None,
) -> None:  # fmt: skip
    """Find the setting that reaches a goal at the lowest cost."""
    from fedsim.cli.run import runtime_from
    from fedsim.cli.sweep import tune as command

    where = runtime_from(runtime, address=address)
    code = command(
        file, grid, goal, minimize, limit, seeds=seeds, out=out, given=settings, jobs=jobs, quiet=quiet, runtime=where
    )
    raise typer.Exit(code)


@app.command(epilog="Next: fedsim report DIR. Manual: fedsim explain sweeps.")
def status(
    folder: Annotated[
        Path, typer.Argument(callback=_path, metavar="DIR", show_default=False, help="Folder of a run or a sweep.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Read every file; otherwise only sizes are checked.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Show the progress and the failures of a run or a sweep.

    The exit code is 0 if all is complete, 1 if a run failed or is damaged, 3 if one is running, 4 if one is to do.
    """
    from fedsim.cli.status import status as command

    lines, code = command(folder, check, as_json)
    print_lines("\n".join(lines))
    raise typer.Exit(code)


@app.command(epilog="Next: open the page. Manual: fedsim explain sweeps, help(fs.analysis).")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", show_default=False, help="Folders of runs or sweeps.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", callback=_path, help="The page. [default: DIR/report.html]"),
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="FILE", help="Scenario file whose figure() is drawn first.")
    ] = None,
) -> None:
    """Write an HTML page about a run, a sweep or several of them."""
    from fedsim.cli.report import report as command

    print_lines(f"report  {command([folder for folder in map(_path, folders) if folder is not None], figure, out)}")


@app.command(epilog="Next: open DIR/report.html in a browser. Manual: fedsim explain reproduce.")
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="PAPER[/FIGURE]", show_default=False, help="Such as fa-ld/fig1a.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use small settings (the default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="Use the paper's settings where feasible.")] = False,
    store: Annotated[bool, typer.Option("--store", help="Store the verdicts beside the figures' scenarios.")] = False,
    jobs: Jobs = None, quiet: Quiet = False,
    out: Out = None,
) -> None:  # fmt: skip
    """Reproduce figures of the papers and check their claims."""
    from fedsim.cli.report import reproduce as command

    raise typer.Exit(command(name, quick=quick, full=full, store=store, jobs=jobs, out=out, quiet=quiet))


@app.command("list", epilog="Next: fedsim run NAME --help. Manual: fedsim explain first-run.")
def list_() -> None:
    """List scenarios, algorithms, policies, networks and metrics."""
    from fedsim.cli.listing import lines
    from fedsim.text import width

    print_lines("\n".join(lines(width())))


@app.command(epilog="Without TOPIC: list the topics. Begin with: fedsim explain first-run.")
def explain(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", show_default=False, help="Such as job, view, or a code such as A5.")
    ] = None,
) -> None:
    """Explain a topic, or a code such as A5 from a docstring."""
    from fedsim.docs import explain as page

    print_lines(page(topic))


@app.command(epilog="Next: fedsim explain first-run, which prints a page in the terminal.")
def docs() -> None:
    """Open the manual in a browser, or explain how to build it."""
    import webbrowser

    from fedsim.docs import site_folder

    page = site_folder() / "index.html"
    if not page.is_file():
        raise InvalidInput(
            "the manual is not built; run pip install 'fedsim-systems[docs]' and python -m fedsim.docs build, or read "
            "it in the terminal: fedsim explain"
        )
    webbrowser.open_new_tab(page.as_uri())
    print_lines(f"manual  {page}")


def _failed(sentence: str, code: int, traceback: Sequence[str] = ()) -> int:
    print_error(f"fedsim: {sentence}", *traceback)
    return code

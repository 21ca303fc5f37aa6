"""The commands and their options; what went wrong becomes one sentence and an exit code.

0    all went well
1    a run failed: it went non-finite, a client's code raised, the machinery gave up
2    a mistake in what was asked for
130  interrupted
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsim.errors import FedsimError, InvalidInput

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Federated samplers and optimisers, really run, over a simulated network of slow and flaky clients.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# The root of what typer raises about usage; it is click's own class or typer's copy of it, by version.
_Usage: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def call(argv: Sequence[str]) -> int:
    """Run the command line `argv` and return the exit code; errors go to stderr in one sentence."""
    try:
        code = int(app(list(argv) or ["--help"], prog_name="fedsim", standalone_mode=False) or 0)
        return (
            _failed("interrupted", code) if code == INTERRUPTED else code
        )  # as newer versions of typer report it
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED)
    except _Usage as error:
        return _failed(f"{error.format_message().rstrip('.')}; see fedsim --help", MISTAKE)
    except InvalidInput as error:
        return _failed(str(error), MISTAKE)
    except FedsimError as error:
        return _failed(str(error), FAILED)


@app.callback()
def fedsim() -> None:
    pass  # without it typer would make the only command the whole program


File = Annotated[
    str | None,
    typer.Argument(metavar="FILE", show_default=False, help="A scenario file, or the name of a shipped one."),
]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="NAME=VALUE", help="An argument of scenario(), or a field: budget.rounds=50."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Leave results and picture in this new folder.")
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Short for --set seed=N.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing unless it fails.")]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="Default: one per core.")]
Runtime = Annotated[str, typer.Option("--runtime", metavar="NAME", help="Where jobs run.")]
Help = Annotated[bool, typer.Option("--help", help="Show this, and FILE's own arguments.")]


@app.command(add_help_option=False)
def run(
    context: typer.Context, file: File = None, settings: Settings = [], out: Out = None, seed: Seed = None,  # noqa: B006
    quiet: Quiet = False, threads: Threads = None, runtime: Runtime = "inline", help: Help = False,
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
        where = command.runtime_named(runtime, threads)
        command.run(file, settings, out=out, seed=seed, quiet=quiet, runtime=where)


@app.command("list")
def list_() -> None:
    """List shipped scenarios, algorithms, problems and policies."""
    from fedsim.cli.listing import lines

    typer.echo("\n".join(lines()))


def _failed(sentence: str, code: int) -> int:
    print(f"fedsim: {sentence}", file=sys.stderr)
    return code

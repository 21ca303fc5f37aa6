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
        return int(app(list(argv) or ["--help"], prog_name="fedsim", standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED)
    except _Usage as error:
        return _failed(f"{error.format_message().rstrip('.')}; see fedsim --help", MISTAKE)
    except InvalidInput as error:
        return _failed(str(error), MISTAKE)
    except FedsimError as error:
        return _failed(f"{type(error).__name__}: {error}", FAILED)


@app.callback()
def fedsim() -> None:
    pass  # without it typer would make the only command the whole program


@app.command(add_help_option=False)
def run(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help="A scenario file, or the name of a shipped one.", show_default=False
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="An argument of scenario(), or a field such as budget.rounds."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Leave results and pictures in this new folder.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Short for --set seed=N.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing unless it fails.")] = False,
    threads: Annotated[int | None, typer.Option("--threads", metavar="N", help="Default: all cores.")] = None,
    runtime: Annotated[
        str, typer.Option("--runtime", metavar="NAME", help="Where jobs run: inline.")
    ] = "inline",
    help_: Annotated[bool, typer.Option("--help", help="Show this, and FILE's own arguments.")] = False,
) -> None:
    """Run a scenario file, or every combination of its grid."""
    from fedsim.cli import run as command
    from fedsim.scenario_file import load_file

    if help_:
        typer.echo(context.get_help())
        if file is not None:
            typer.echo("\n".join(["", *command.help_lines(load_file(file))]))
        return
    if file is None:
        raise InvalidInput("run needs a FILE, such as fedsim run quickstart; see fedsim run --help")
    command.run(
        file, set_ or [], out=out, seed=seed, quiet=quiet, runtime=command.runtime_named(runtime, threads)
    )


@app.command("list")
def list_() -> None:
    """List shipped scenarios, algorithms, problems and policies."""
    from fedsim.cli.listing import lines

    typer.echo("\n".join(lines()))


def _failed(sentence: str, code: int) -> int:
    print(f"fedsim: {sentence}", file=sys.stderr)
    return code

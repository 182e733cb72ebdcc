"""The app: a group of commands whose errors are for people.

What is wrong with the input is one line on standard error and exit code 2; what was interrupted has exit code 130.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syno.base.errors import SynoError, UserCodeError

WRONG, NOT_THERE, INTERRUPTED = 2, 1, 130
ORDER = (
    *("plan", "convert", "data", "search", "worker", "freeze", "select", "train", "baseline", "tune", "devices"),
    *("tables", "figure", "report", "top", "show", "get", "measurements", "artifact"),
)
STAGES, RESULTS, SPACES = "An experiment, stage by stage", "What was found", "Spaces of operators"  # of the help page
HINT = "; the whole traceback: syno --debug COMMAND ..."  # of errors in the user's own code


class Commands(TyperGroup):
    """A group whose errors and warnings are for people."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The stages in their order, then the rest."""
        return sorted(super().list_commands(ctx), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def invoke(self, ctx: Any) -> Any:
        """Run a command; input that is wrong becomes one line."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
            try:
                return super().invoke(ctx)
            except SynoError as error:
                if ctx.params.get("debug"):
                    raise
                hint = HINT if isinstance(error, UserCodeError) and error.__cause__ is not None else ""
                typer.echo(f"error: {' '.join(str(error).split())}{hint}", err=True)
                raise typer.Exit(WRONG) from None


HELP = """Synthesize layer operators for neural networks, train and tune them, and take them home.

`snakemake --cores 2` runs all stages of an experiment; each is also a command here."""
SHORT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    cls=Commands, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, context_settings=SHORT
)


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", envvar="SYNO_DEBUG", help="Show where an error was raised.")] = False,
) -> None:
    """What all commands share."""


def stopped(what: str) -> typer.Exit:
    """To be raised where work was interrupted that goes on when it is asked for again."""
    typer.echo(f"stopped: {what}; the same command goes on", err=True)
    return typer.Exit(INTERRUPTED)

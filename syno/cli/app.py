"""The command-line app: a group of commands that print input errors as one line.

Exit codes tell whether a retry of the same command may help: not after 2 (an error of the input or of user code), nor after 1
(with a traceback, or a negative answer). 75 (EX_TEMPFAIL of sysexits.h) means that the machine failed, as with a full disk, and
130 that the command was interrupted. The workflow restarts jobs accordingly (`syno.stages.workflow`).
"""

from __future__ import annotations

import warnings
from contextvars import copy_context
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syno.base.addresses import visible, without_passwords
from syno.base.errors import SynoError, UserCodeError
from syno.base.extensions import COMMANDS, READING_COMMANDS, load_extensions
from syno.base.registry import only_read

WRONG, NOT_THERE, INTERRUPTED, MACHINE_FAILED = 2, 1, 130, 75
OTHERS = ("watch", "top", "show", "get", "measurements")  # commands after those of the stages, in their order
STAGES, RESULTS, SPACES = "An experiment, stage by stage", "Results", "Spaces of operators"  # parts of the help page
# Commands that import no code that an experiment names: docs/trust.md says what runs code. `get` asks before it does.
ONLY_READ = ("plan", "freeze", "shortlist", "select", "tables", "figure", "report", "watch", "top", "measurements")
HINT = "; the whole traceback: syno --debug COMMAND ..."  # for errors in the user's own code


class Commands(TyperGroup):
    """A group of commands that prints errors and warnings as one line each."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of the stages, followed by the others."""
        from syno.stages import workflow_stages

        of_stages = [name for stage in workflow_stages.STAGES.values() for name in stage.commands]
        order = ["plan", "check", "run", *of_stages, *OTHERS]
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else len(order))

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Input errors are printed as one line."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: typer.echo(
                f"warning: {visible(without_passwords(str(message)))}", err=True
            )
            try:
                return copy_context().run(super().invoke, ctx)  # in it, what a command sets ends with the command
            except (SynoError, OSError, MemoryError, RuntimeError) as error:
                from syno.search.faults import LATER, may_pass

                if ctx.params.get("debug"):
                    raise
                if may_pass(error):
                    text = f"{' '.join(without_passwords(str(error)).split()) or type(error).__name__}"
                    typer.echo(f"error: {text}{LATER}", err=True)
                    raise typer.Exit(MACHINE_FAILED) from None
                if not isinstance(error, SynoError):
                    raise
                hint = HINT if isinstance(error, UserCodeError) and error.__cause__ is not None else ""
                typer.echo(f"error: {' '.join(str(error).split())}{hint}", err=True)
                raise typer.Exit(WRONG) from None


HELP = """Synthesize layer operators for neural networks, train and measure them, and export them.

`syno run FILE` runs all stages of an experiment; each is also a command here."""
OF_VERSION = {"Python": "python", "torch": "torch", "optuna": "optuna"}  # printed names of what matters for results
SHORT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    cls=Commands, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, context_settings=SHORT
)


def _print_versions(is_given: bool) -> None:
    if not is_given:
        return
    from syno.base.record import versions

    installed = versions(["torch", "optuna"])
    others = ", ".join(f"{name} {installed.get(key, 'is not installed')}" for name, key in OF_VERSION.items())
    typer.echo(f"syno {installed['syno']} ({others})")
    raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_versions, is_eager=True, help="Print versions and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="SYNO_DEBUG", help="Show where an error was raised.")] = False,
) -> None:
    """Read the options of all commands; read-only commands may import no code of users."""
    if context.invoked_subcommand in (*ONLY_READ, *READING_COMMANDS):
        only_read(f"`syno {context.invoked_subcommand}`")


def add_commands_of_extensions() -> None:
    """Import the modules of commands that extensions list in `COMMANDS`."""
    load_extensions()
    for module in COMMANDS:
        import_module(module)


def stopped(work: str) -> typer.Exit:
    """Print that the interrupted work can be continued by the same command; return the exit to raise."""
    typer.echo(f"stopped: {visible(without_passwords(work))}; the same command goes on", err=True)
    return typer.Exit(INTERRUPTED)

"""The commands. Each reads its arguments, calls the library, and prints the result."""

from syno.cli import evaluations, operators, outputs, preparations, speedups, studies, take_home, watching, workflow
from syno.cli.app import add_commands_of_extensions, app

__all__ = [
    "app",
    "evaluations",
    "operators",
    "outputs",
    "preparations",
    "speedups",
    "studies",
    "take_home",
    "watching",
    "workflow",
]

add_commands_of_extensions()

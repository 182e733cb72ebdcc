"""The commands. Each reads its arguments, calls the library, and prints the result."""

from syno.cli import evaluations, operators, outputs, speedups, stages, watching
from syno.cli.app import add_commands_of_extensions, app

__all__ = [
    "app",
    "evaluations",
    "operators",
    "outputs",
    "speedups",
    "stages",
    "watching",
]

add_commands_of_extensions()

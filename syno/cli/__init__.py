"""The commands. Each reads its arguments, calls the library, and prints what that returns."""

from syno.cli import ablations, evaluations, operators, studies
from syno.cli.app import app

__all__ = ["ablations", "app", "evaluations", "main", "operators", "studies"]


def main() -> None:
    """The entry point."""
    app()

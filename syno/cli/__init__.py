"""The commands. Each reads its arguments, calls the library, and prints what that returns."""

from syno.cli import ablations, artifacts, conversion, devices, evaluations, operators, plans, studies
from syno.cli.app import app

__all__ = ["ablations", "app", "artifacts", "conversion", "devices", "evaluations", "main", "operators", "plans", "studies"]


def main() -> None:
    """The entry point."""
    app()

"""The commands. Each reads its arguments, calls the library, and prints the result."""

from syno.cli import (
    artifacts,
    benches,
    evaluations,
    operators,
    outputs,
    preparations,
    speedups,
    studies,
    take_home,
    watching,
    workflow,
)
from syno.cli.app import app

__all__ = [
    "app",
    "artifacts",
    "benches",
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

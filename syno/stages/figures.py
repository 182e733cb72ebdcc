"""Figures of an experiment, one by one."""

from __future__ import annotations

from pathlib import Path

from syno.config import Experiment


def names(experiment: Experiment) -> list[str]:
    """The figures that an experiment has."""
    return ["reward"]


def draw(experiment: Experiment, name: str) -> list[Path]:
    """Draw one."""
    return []

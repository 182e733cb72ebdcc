"""The experiments in `examples/`, as a user has them, and with less to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from syno.config import Experiment
from syno.config.files import load_experiments

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(file.parent.name for file in FOLDER.glob("*/experiment.yaml"))


def fields_of(name: str) -> dict[str, Any]:
    """Return the content of the example's file."""
    fields: dict[str, Any] = yaml.safe_load((FOLDER / name / "experiment.yaml").read_text(encoding="utf-8"))
    return fields


def with_samples(fields: Mapping[str, Any], train: int, test: int) -> dict[str, Any]:
    """Return the content with so many samples."""
    workload = dict(fields["workload"])
    workload["data_settings"] = {**workload.get("data_settings", {}), "train": train, "test": test}
    return {**fields, "workload": workload}


def small_example(name: str) -> Experiment:
    """Return the example with 64 + 32 samples."""
    found = load_experiments(with_samples(fields_of(name), 64, 32), file=FOLDER / name / "experiment.yaml")
    return found[name]

"""The experiment and the raw records of the table of truth: one JSON file for each training, latency and set of proxies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from syno.base.files import write_whole
from syno.config.experiment import Experiment
from syno.config.files import load_experiment
from syno.space.spec import OperatorSpec

EXPERIMENT = Path(__file__).with_name("table.yaml")
OPERATORS = "operators.jsonl"
ORIGINAL = "original"
SEEDS = (0, 1)

Record = Mapping[str, Any]


@cache
def experiment() -> Experiment:
    return load_experiment(str(EXPERIMENT))


def spec() -> OperatorSpec:
    """The space of the table's operators: that of the experiment, without a requirement on what is read."""
    found = experiment().operator_spec
    return found.with_(reads=None) if "reads" in OperatorSpec.model_fields else found


def operators(records: Path) -> list[Record]:
    """The operators in the order in which they are measured."""
    return [json.loads(line) for line in (records / OPERATORS).read_text().splitlines()]


def read(folder: Path) -> dict[str, Record]:
    """The records of a folder by the id of the operator."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def missing(folder: Path, ids: list[str]) -> Iterator[str]:
    """Yield the ids that have no record yet, each claimed by this process. Several processes may work at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ids:
        if _claimed(folder, name):
            yield name


def _claimed(folder: Path, name: str) -> bool:
    """Whether this process is the one that makes the record; a claim of a dead process is taken over."""
    if (folder / f"{name}.json").exists():
        return False
    claim = folder / f"{name}.claim"
    try:
        with claim.open("x") as file:
            file.write(str(os.getpid()))
        return True
    except FileExistsError:
        text = claim.read_text()
        if text and not Path(f"/proc/{text}").exists():
            claim.write_text(str(os.getpid()))
            return True
        return False


def keep(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Write a record, and end the claim."""
    write_whole(folder / f"{name}.json", json.dumps({**content, "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}"}))
    (folder / f"{name}.claim").unlink(missing_ok=True)

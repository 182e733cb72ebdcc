"""The data that the paper's authors published, as measurements and operators of ours: the start of a reproduction."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from syno.artifact.files import Step
from syno.artifact.operators import PublishedEntry
from syno.artifact.problems import Problem
from syno.artifact.reading import read
from syno.base.record import Number, Record, versions
from syno.results.measurement import Measurements
from syno.results.table import MEASUREMENTS, measurement_table, write_table
from syno.stages.store import OperatorStore

MADE_BY = "syno artifact import"
RECORD, FILE, LOSSES = "artifact.json", "measurements.json", "losses"
STEPS_IN_A_ROW = 100  # of the log of losses


class ImportedOperator(BaseModel):
    """An operator of the published data.

    Attributes:
        name: in the measurements.
        operator_id: None where its graph was not published.
        key: of its file in the operator store; None where there is none.
        path: in the search that found it.
        folders: where it lies in the data.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    operator_id: str | None
    key: str | None
    path: str
    folders: tuple[str, ...]


class ImportRecord(Record):
    """What was read of the published data.

    Attributes:
        artifact: the folder, as it was given.
        measurements: how many there are, what the paper tells included.
        operators: each one once.
        problems: what was missing, damaged or contradictory.
        versions: of what took part.
    """

    kind_of_record = "record of an import"
    again = f"run `{MADE_BY}`"
    passing = frozenset({"artifact"})

    artifact: str
    measurements: Number
    operators: tuple[ImportedOperator, ...]
    problems: tuple[Problem, ...]
    versions: dict[str, str]


def import_artifact(given: Path, output: Path) -> ImportRecord:
    """Read a checkout of the artifact, or its data folder, and write into `output` what it holds.

    `measurements.json` and `tables/measurements` have the numbers, `tables/losses` the log of GPT-2's training if it is there,
    `operators/` the operators whose graphs were published, `artifact.json`, written last, what was read and what is missing.

    Raises DataError if it is no artifact, or nothing can be read of it.
    """
    contents = read(given)
    store = OperatorStore(output)
    operators = tuple(_imported(entry, store) for entry in contents.operators)
    Measurements(measurements=contents.measurements).write(output / FILE)
    write_table(measurement_table(contents.measurements), output, MEASUREMENTS)
    _write_losses(contents.losses, output)
    record = ImportRecord(
        artifact=str(given),
        measurements=len(contents.measurements),
        operators=operators,
        problems=contents.problems,
        versions=versions([]),
    )
    record.write(output / RECORD)
    return record


def _imported(entry: PublishedEntry, store: OperatorStore) -> ImportedOperator:
    key = None if entry.graph is None else store.add(entry.graph)
    return ImportedOperator(
        name=entry.name, operator_id=entry.id, key=key, path=entry.path, folders=tuple(map(str, entry.places))
    )


def _write_losses(steps: tuple[Step, ...], output: Path) -> None:
    """A row for so many steps: the last one's number and time, and the mean of their losses. No row if there is no log."""
    import pandas

    groups = [steps[start : start + STEPS_IN_A_ROW] for start in range(0, len(steps), STEPS_IN_A_ROW)]
    rows = [
        (min((place + 1) * STEPS_IN_A_ROW, len(steps)), group[-1].seconds / 60, sum(step.loss for step in group) / len(group))
        for place, group in enumerate(groups)
    ]
    table = pandas.DataFrame(rows, columns=["step", "minutes", "loss"])
    write_table(table.astype({"step": int, "minutes": float, "loss": float}), output, LOSSES)

"""The import of published data into a folder of results."""

from __future__ import annotations

from pathlib import Path

from syno.base.files import ORIGINAL
from syno.base.record import versions
from syno.paper.artifact import NUMBERS, RECORD
from syno.paper.artifact.files import TrainingStep
from syno.paper.artifact.imported import ImportedOperator, ImportRecord
from syno.paper.artifact.operators import PublishedEntry
from syno.paper.artifact.places import LANGUAGE_LOG
from syno.paper.artifact.reading import read
from syno.paper.numbers import LANGUAGE_DATA, LANGUAGE_MODEL
from syno.run import LOSSES, MEASUREMENTS
from syno.run.measurement import Measurements
from syno.run.table import loss_table, measurement_table, write_table
from syno.stages.store import OperatorStore

STEPS_IN_A_ROW = 100  # of the log of losses


def import_artifact(checkout: Path, output: Path) -> ImportRecord:
    """Read a checkout of the artifact, or its data folder, and write its content into `output`.

    `measurements.json` and `tables/measurements` have the numbers, `tables/losses` the log of GPT-2's training if it exists,
    `operators/` the operators whose graphs were published. `artifact.json`, written last, lists the operators read and the
    missing files.

    Raises DataError if the folder is no checkout of the artifact, or has no readable measurement.
    """
    contents = read(checkout)
    store = OperatorStore(output)
    operators = tuple(_imported(entry, store) for entry in contents.operators)
    Measurements(measurements=contents.measurements).write(output / NUMBERS)
    write_table(measurement_table(contents.measurements), output, MEASUREMENTS)
    _write_losses(contents.losses, output)
    record = ImportRecord(
        artifact=str(checkout),
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


def _write_losses(steps: tuple[TrainingStep, ...], output: Path) -> None:
    """Write the loss curve, with a row for every 100 steps: the last step's number and time, and the mean of their losses."""
    groups = [steps[start : start + STEPS_IN_A_ROW] for start in range(0, len(steps), STEPS_IN_A_ROW)]
    rows = [
        (min((place + 1) * STEPS_IN_A_ROW, len(steps)), group[-1].seconds / 60, sum(step.loss for step in group) / len(group))
        for place, group in enumerate(groups)
    ]
    shared = {
        "operator": ORIGINAL,
        "model": LANGUAGE_MODEL,
        "data": LANGUAGE_DATA,
        "origin": "artifact",
        "source": str(LANGUAGE_LOG),
    }
    points = ({"step": step, "minutes": minutes, "loss": loss, **shared} for step, minutes, loss in rows)
    write_table(loss_table(points), output, LOSSES)

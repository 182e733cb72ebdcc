"""Measurements as a tidy table: a row for each, a column for each of its fields."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pandas

from syno.results.measurement import Measurement

COLUMNS = tuple(Measurement.model_fields)
WHOLE = ("repeats", "seed")  # columns of whole numbers, some of which may be unknown


def measurement_table(measurements: Iterable[Measurement]) -> pandas.DataFrame:
    """The table. Versions are JSON, times are UTC; what is unknown is missing."""
    rows = [
        {**measurement.model_dump(), "versions": json.dumps(measurement.versions, sort_keys=True)}
        for measurement in measurements
    ]
    table = pandas.DataFrame(rows, columns=list(COLUMNS))
    table["when"] = pandas.to_datetime(table["when"], utc=True)
    return table.astype({"value": float, **dict.fromkeys(WHOLE, "Int64")})

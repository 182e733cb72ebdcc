"""What a finished experiment has found, as tables: the input of its figures and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas

from syno.errors import SpecError, suggestion
from syno.ir.graph import PGraph

ORIGINAL = "original"  # the name and the role of the network as it is
ROLES = (ORIGINAL, "baseline", "found")
ACCURACY_COLUMNS = (
    "operator", "operator_id", "role", "accuracy", "accuracy_std", "seeds", "flops", "flops_share", "parameters",
    "parameters_share",
)  # fmt: skip
LATENCY_COLUMNS = (
    "operator", "operator_id", "role", "device", "device_name", "compiler", "status", "reason", "latency_ms", "latency_low_ms",
    "latency_high_ms", "batch", "threads", "checked", "suspicious", "speedup",
)  # fmt: skip
TRIAL_COLUMNS = ("number", "outcome", "reward")


@dataclass(frozen=True)
class Results:
    """The results of one experiment. Each table may be empty.

    Attributes:
        name: of the experiment.
        trials: one row for each trial (`syno.search.records.table`).
        accuracy: one row for each operator (`ACCURACY_COLUMNS`): accuracy is the mean over seeds, in [0, 1]; FLOPs are
            those of one picture; shares are of the original network's.
        latency: one row for each operator, device and compiler (`LATENCY_COLUMNS`): `status` is "ok" or says what failed
            or, with "partial", that some of it is not tuned; `speedup` is of those that are "ok", over the original on the
            same device with the same compiler.
        operators: by the name that the tables use; the original is not among them.
        notes: where the results come from.

    Raises SpecError if a table lacks a column.
    """

    name: str
    trials: pandas.DataFrame
    accuracy: pandas.DataFrame
    latency: pandas.DataFrame
    operators: Mapping[str, PGraph]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        complete(self.trials, TRIAL_COLUMNS, "trials")
        complete(self.accuracy, ACCURACY_COLUMNS, "accuracy")
        complete(self.latency, LATENCY_COLUMNS, "latency")


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        title: what it shows.
        svg: an SVG document.
        caption: how to read it.
    """

    title: str
    svg: str
    caption: str = ""


def complete(rows: pandas.DataFrame, columns: Sequence[str], what: str) -> pandas.DataFrame:
    """The table, numbered from 0; an empty one gets the columns it lacks. SpecError if one with rows lacks any."""
    if rows.empty:
        return rows.reindex(columns=list(dict.fromkeys([*rows.columns, *columns])))
    if missing := [name for name in columns if name not in rows.columns]:
        hint = suggestion(missing[0], map(str, rows.columns))
        raise SpecError(f'the {what} table has no column "{missing[0]}"; it needs: {", ".join(columns)}.{hint}')
    return rows.reset_index(drop=True)

"""Selection: which of the operators that a search evaluated are trained again and tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from syno.config import Experiment
from syno.errors import SpecError
from syno.files import write_whole
from syno.ir.text import parse
from syno.report.pareto import front
from syno.stages.freeze import read_frozen
from syno.stages.source import taken
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

FILE = "selected.json"


class Selected(BaseModel):
    """An operator that was selected.

    Attributes:
        key: by which the operator store has it.
        name: for people.
        trial: of the study.
        reward: in the search.
        metrics: measured in the search.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    name: str
    trial: int
    reward: float
    metrics: dict[str, float]


def select(experiment: Experiment, output: Path | None = None) -> list[Selected]:
    """Choose operators as `select` in the config says, and write a list of them.

    They are of the frozen table, the best reward first; or of what another experiment selected, the best score first.

    Raises SpecError if there is no frozen table (or the other experiment is not so far), or nothing there can be selected.
    """
    if (source := experiment.select.source) is not None:
        return write_selected(taken(experiment, read_selected(source / FILE)), output or experiment.folder / FILE)
    settings, table = experiment.select, read_frozen(experiment)
    table = table[table["outcome"] == "complete"]
    if "metric_accuracy" in table:
        table = table[table["metric_accuracy"] >= settings.least_accuracy]
    elif settings.by == "pareto":
        raise SpecError(
            f'select: by is "pareto", but the trials of "{experiment.name}" have no accuracy; give select: {{by: reward}}'
        )
    if table.empty:
        raise SpecError(
            f'no trial of "{experiment.name}" can be selected: none is complete'
            + (f" with an accuracy of {settings.least_accuracy:g}" if settings.least_accuracy else "")
            + "; the column message of the trials table says why; search longer, or lower select: least_accuracy"
        )
    ranked = table.sort_values(["reward", "number"], ascending=[False, True], kind="stable")
    if settings.by == "pareto":
        ranked = _front_first(ranked)
    chosen = [_selected(experiment, row) for _, row in ranked.head(settings.count).iterrows()]
    chosen.sort(key=lambda one: (-one.reward, one.trial))
    return write_selected(chosen, output or experiment.folder / FILE)


def _front_first(ranked: pandas.DataFrame) -> pandas.DataFrame:
    """Those first that no other trial beats in both accuracy and FLOPs; in each part the order stays."""
    points = list(zip(ranked["metric_flops"], ranked["metric_accuracy"], strict=True))
    on_front = set(front(points))
    order = sorted(range(len(points)), key=lambda place: place not in on_front)
    return ranked.iloc[order]


def _selected(experiment: Experiment, row: pandas.Series) -> Selected:
    operator = parse(row["operator"], f"operator of trial {row['number']}").renamed(f"{experiment.name}_{row['number']}")
    metrics = {
        str(name).removeprefix("metric_"): float(value)
        for name, value in row.items()
        if str(name).startswith("metric_") and value == value
    }
    key = OperatorStore(experiment.folder).add(operator)
    return Selected(key=key, name=operator.name, trial=int(row["number"]), reward=float(row["reward"]), metrics=metrics)


def write_selected(chosen: list[Selected], file: Path) -> list[Selected]:
    """Write what was chosen; returns it."""
    write_whole(file, json.dumps([one.model_dump() for one in chosen], indent=1) + "\n")
    return chosen


def read_selected(file: Path) -> list[Selected]:
    """What `select` wrote. SpecError if it is not there, or holds something else."""
    try:
        return [Selected.model_validate(row) for row in json.loads(file.read_text(encoding="utf-8"))]
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror}; `syno select` makes it") from error
    except (ValueError, TypeError, ValidationError) as error:
        raise SpecError(
            f"{file} holds no selection: {str(error).splitlines()[0]}; delete it and run `syno select` again"
        ) from error

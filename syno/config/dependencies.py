"""Experiments that continue another one: the best operator of the other experiment is already in the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import model_validator

from syno.base.errors import SpecError
from syno.config.groups import Section
from syno.config.kept_file import KEPT
from syno.ir.text import read_operator_file
from syno.model.placed import PlacedOperator, without_placed
from syno.run import FOLDER, OPERATORS, SCORES
from syno.run.parquet import read_parquet
from syno.run.values import STATES
from syno.train.settings import WorkloadSettings


def way_back(follows: Mapping[Path, Iterable[Path]]) -> list[Path]:
    """Return a cycle of folders in the graph `follows`, with the first folder repeated at the end; [] if there is none.

    It starts at the folder of the cycle that comes first in `follows`.
    """
    try:
        TopologicalSorter(follows).prepare()
    except CycleError as error:
        way = error.args[1][:0:-1]  # the cycle runs against `follows`, and its last node is its first again
        start = way.index(min(way, key=list(follows).index))
        return [*way[start:], *way[: start + 1]]
    return []


OF_NETWORK = ("model", "model_settings", "width")  # settings that must be equal in both experiments
SCORES_OF_SOURCE = f"{FOLDER}/{SCORES}.parquet"  # in the folder of results of the other experiment


class After(Section):
    """Another experiment, whose operator is already in the network. Plain text stands for its `source`."""

    source: Path
    """the other experiment, by its name in this file or its folder of results"""
    operator: str | None = None
    """the operator, by its name or key; null: the operator with the best mean score; with a goal, among the operators
    nearest to it
    """

    @model_validator(mode="before")
    @classmethod
    def _from_source(cls, source: Any) -> Any:
        return {"source": source} if isinstance(source, str | Path) else source


def with_operators(
    after: After | None, workload: WorkloadSettings | None, load: Callable[[Path], WorkloadSettings | None]
) -> WorkloadSettings | None:
    """Return an experiment's network and data, with the operators that earlier experiments placed in it, once they are known.

    They are known as soon as the other experiment has result tables.

    Args:
        after: the other experiment; None if there is none.
        workload: the network and data in the experiment's settings.
        load: returns the workload of the experiment in a file.

    Raises SpecError if there is no workload, the networks differ, or the other experiment has trained no such operator;
    ParseError if the operator's file is damaged.
    """
    if after is None:
        return workload
    if workload is None:
        raise SpecError("after: needs a workload: give the network that both experiments are about")
    if workload.placed:
        raise SpecError("after: says which operators are placed; leave out workload: placed")
    if not ((after.source / KEPT).is_file() and (after.source / SCORES_OF_SOURCE).is_file()):
        return workload
    placed = _placed(after, load(after.source / KEPT), workload)
    return workload.model_copy(update={"placed": placed})


def check_placed(name: str, after: After | None, workload: WorkloadSettings) -> None:
    """Raise SpecError if the network is not known yet: the experiment that it comes `after` has trained no operator so far."""
    if after is not None and not workload.placed:
        raise SpecError(
            f'experiment "{name}" goes on from {after.source}, which has no tables with trained operators yet; run that '
            "experiment first, or both with `syno run FILE`"
        )


def as_given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the operators derived from `after`, which change when that experiment has run."""
    if settings.get("after") is None or settings.get("workload") is None:  # defaults may be left out
        return settings
    return {**settings, "workload": without_placed(settings["workload"])}


def _placed(after: After, source: WorkloadSettings | None, own: WorkloadSettings) -> tuple[PlacedOperator, ...]:
    """Return the operators already in the network: those in the other experiment's network, and that experiment's best
    operator.
    """
    if source is None:
        raise SpecError(f"after: {after.source} has no workload, so it has found no operator for this network")
    for name in OF_NETWORK:
        if getattr(source, name) != getattr(own, name):
            raise SpecError(
                f"after: the network of {after.source} has the {name} {getattr(source, name)}, and that of this experiment "
                f"{getattr(own, name)}; give both the same"
            )
    file = after.source / SCORES_OF_SOURCE
    table = read_parquet(file, "syno tables", ("operator", "key", "role", "score"))
    trained = table[(table["role"] == "found") & table["score"].notna()]  # the best first
    rows = list[Mapping[Any, Any]](trained.to_dict("records"))
    if after.operator is not None:
        known = ", ".join(str(row["operator"]) for row in rows) or "none"
        rows = [row for row in rows if after.operator in (row["operator"], row["key"])]
        if not rows:
            raise SpecError(f'after: {after.source} has trained no operator "{after.operator}"; it has: {known}')
    if not rows:
        raise SpecError(f"after: {file} has no operator with a score; select and train one there (train: seeds)")
    best = min(rows, key=_place)
    text = str(read_operator_file(after.source / OPERATORS / f"{best['key']}.txt", written_by_program=True))
    return (*source.placed, PlacedOperator(operator=text, layers=source.layers))


def _place(row: Mapping[Any, Any]) -> int:
    """Return the rank of an operator's verdict on the goal, 0 for the best; 0 without a goal."""
    verdict = row.get("verdict")
    return STATES.index(verdict) if verdict in STATES else 0

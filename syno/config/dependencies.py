"""An experiment that goes on from another one: the network has the other one's best operator already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from syno.base.errors import SpecError, suggestion
from syno.config.groups import Section
from syno.config.kept_file import KEPT
from syno.ir.text import read_operator_file
from syno.model.placed import PlacedOperator, without_placed
from syno.run import FOLDER, OPERATORS, SCORES
from syno.run.goal import STATES
from syno.run.parquet import read_parquet
from syno.train.settings import WorkloadSettings

if TYPE_CHECKING:
    from syno.config.stages import JoinSettings


# Experiments of joined results among others: names of experiments become folders, and what cannot be joined is an error.


ALL = "all"


def folders_of_join(name: str, join: Mapping[str, Any], folders: Mapping[str, Path], joins: Iterable[str]) -> dict[str, Any]:
    """Return the settings `join` of one of several experiments, with folders in place of names.

    Args:
        name: the experiment's name.
        join: its settings as given.
        folders: the folder of results of every experiment in the file, by name.
        joins: names of those that are of joined results themselves.

    Raises SpecError for a name that means neither an experiment nor a folder, and for the experiment's own.
    """
    of = join.get("of")
    if of == ALL:
        others = [str(folder) for other, folder in folders.items() if other not in {name, *joins}]
        return {**join, "of": others or ALL}
    given = [of] if isinstance(of, str) else of
    if not isinstance(given, list | tuple):
        return dict(join)  # the settings say what is wrong with it
    return {**join, "of": [_folder(name, str(one), folders) for one in given]}


def _folder(name: str, source: str, folders: Mapping[str, Path]) -> str:
    if source == name:
        raise SpecError(f'experiment "{name}": join: of: it cannot be joined with itself; leave it out')
    if source in folders:
        return str(folders[source])
    if not Path(source).exists() and "/" not in source:
        raise SpecError(
            f'experiment "{name}": join: of: neither an experiment here nor a folder of results is called "{source}"; there '
            f"are: {', '.join(other for other in folders if other != name)}.{suggestion(source, folders)}"
        )
    return source


def check_joins(names: Mapping[Path, str], joins: Mapping[Path, JoinSettings], sources: Mapping[Path, Path | None]) -> None:
    """Check the experiments of joined results in a file.

    Args:
        names: the name of each experiment in the file, by its folder of results.
        joins: the settings of those of joined results, likewise.
        sources: the folder from which each experiment takes operators, likewise.

    Raises SpecError if one joins itself through others, if a pattern of `proxy` or `final` matches no experiment, or if an
    experiment takes operators from joined results.
    """
    if way := way_back({folder: [Path(one) for one in join.of] for folder, join in joins.items()}):
        shown = " joins ".join(names.get(folder, str(folder)) for folder in way)
        raise SpecError(f'experiment "{names[way[0]]}": join: of leads back to itself: {shown}; leave one of them out')
    for folder, join in joins.items():
        _check_patterns(names[folder], join, list(_names(folder, names, joins)))
    for folder, source in sources.items():
        if source is not None and source in joins:
            raise SpecError(
                f'experiment "{names[folder]}": select: source: "{names[source]}" is of joined results, which no operator is '
                "selected from; name one of the experiments that it joins"
            )


def way_back(follows: Mapping[Path, Iterable[Path]]) -> list[Path]:
    """Return a way from a folder to itself along `follows`, with the folder at both ends; an empty list if there is none.

    It begins at the folder of the way that comes first in `follows`.
    """
    try:
        TopologicalSorter(follows).prepare()
    except CycleError as error:
        way = error.args[1][:0:-1]  # the cycle runs against `follows`, and its last node is its first again
        start = way.index(min(way, key=list(follows).index))
        return [*way[start:], *way[: start + 1]]
    return []


def _names(folder: Path, names: Mapping[Path, str], joins: Mapping[Path, JoinSettings]) -> Iterator[str]:
    """Yield the names of all experiments that are joined, also through others."""
    for one in map(Path, joins[folder].of):
        yield names.get(one, one.name)
        if one in joins:
            yield from _names(one, names, joins)


def _check_patterns(name: str, join: JoinSettings, known: list[str]) -> None:
    for option, patterns in (("proxy", join.proxy), ("final", join.final)):
        for pattern in patterns:
            if not any(fnmatchcase(one, pattern) for one in known):
                raise SpecError(
                    f'experiment "{name}": join: {option}: no experiment that is joined is called "{pattern}"; there are: '
                    f"{', '.join(known)}.{suggestion(pattern, known)}"
                )
    for one in known:
        if role_of(one, join) == "both":
            raise SpecError(f'experiment "{name}": join: "{one}" is of both proxy and final; each experiment has one data set')


def role_of(name: str, join: JoinSettings) -> str | None:
    """Return "proxy" or "final" if patterns say so of an experiment, "both" if both do, and None if none does."""
    found = [
        option
        for option, patterns in (("proxy", join.proxy), ("final", join.final))
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    return "both" if len(found) > 1 else next(iter(found), None)


OF_NETWORK = ("model", "model_settings", "width")  # settings that must be equal in both experiments
SCORES_OF_SOURCE = f"{FOLDER}/{SCORES}.parquet"  # in the folder of results of the other experiment


class After(Section):
    """Another experiment, whose operator is in the network already. A text in place of the mapping is its `source`."""

    source: Path
    """the other experiment, by its name in this file or its folder of results"""
    operator: str | None = None
    """the operator, by its name or key; null: the one nearest to the goal, if there is one, and with the best mean score"""

    @model_validator(mode="before")
    @classmethod
    def _from_source(cls, source: Any) -> Any:
        return {"source": source} if isinstance(source, str | Path) else source


def with_operators(
    after: After | None, workload: WorkloadSettings | None, load: Callable[[Path], WorkloadSettings | None]
) -> WorkloadSettings | None:
    """Return the workload of an experiment, with the operators that are in the network already, if they are known.

    They are as soon as the other experiment has tables.

    Args:
        after: the other experiment; None if the experiment goes on from no other.
        workload: the network as the experiment gives it.
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
    """Raise SpecError if an experiment's network is not known yet, since the one that goes first has found no operator."""
    if after is not None and not workload.placed:
        raise SpecError(
            f'experiment "{name}" goes on from {after.source}, which has no tables with trained operators yet; run that '
            "experiment first, or both with `syno run FILE`"
        )


def as_given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment's settings without the operators that follow from `after`: they change when it has been run."""
    if settings.get("after") is None or settings.get("workload") is None:  # defaults may be left out
        return settings
    return {**settings, "workload": without_placed(settings["workload"])}


def _placed(after: After, source: WorkloadSettings | None, own: WorkloadSettings) -> tuple[PlacedOperator, ...]:
    """Return the operators that are in the network: those that the other experiment began with, and the one it found."""
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
    found = table[(table["role"] == "found") & table["score"].notna()]  # the best first
    rows = list[Mapping[Any, Any]](found.to_dict("records"))
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
    """Return the place of an operator's verdict among the verdicts on a goal, the best first; 0 without a goal."""
    verdict = row.get("verdict")
    return STATES.index(verdict) if verdict in STATES else 0

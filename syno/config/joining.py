"""Experiments of joined results among others: names of experiments become folders, and what cannot be joined is an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError, suggestion

if TYPE_CHECKING:
    from syno.config.stages import JoinSettings

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


def _folder(name: str, given: str, folders: Mapping[str, Path]) -> str:
    if given == name:
        raise SpecError(f'experiment "{name}": join: of: it cannot be joined with itself; leave it out')
    if given in folders:
        return str(folders[given])
    if not Path(given).exists() and "/" not in given:
        raise SpecError(
            f'experiment "{name}": join: of: neither an experiment here nor a folder of results is called "{given}"; there '
            f"are: {', '.join(other for other in folders if other != name)}.{suggestion(given, folders)}"
        )
    return given


def check_joins(names: Mapping[Path, str], joins: Mapping[Path, JoinSettings], sources: Mapping[Path, Path | None]) -> None:
    """Check the experiments of joined results in a file.

    Args:
        names: the name of each experiment in the file, by its folder of results.
        joins: the settings of those of joined results, likewise.
        sources: the folder from which each experiment takes operators, likewise.

    Raises SpecError if one joins itself through others, if a pattern of `proxy` or `final` matches no experiment, or if an
    experiment takes operators from joined results.
    """
    for folder, join in joins.items():
        if (way := _way_back(folder, folder, joins)) is not None:
            shown = " joins ".join(names.get(place, str(place)) for place in way)
            raise SpecError(f'experiment "{names[folder]}": join: of leads back to itself: {shown}; leave one of them out')
        _check_patterns(names[folder], join, list(_names(folder, names, joins)))
    for folder, source in sources.items():
        if source is not None and source in joins:
            raise SpecError(
                f'experiment "{names[folder]}": select: source: "{names[source]}" is of joined results, which no operator is '
                "selected from; name one of the experiments that it joins"
            )


def _way_back(start: Path, place: Path, joins: Mapping[Path, JoinSettings]) -> list[Path] | None:
    """Return the folders on a way from `place` back to `start`, both included; None if there is none."""
    for after in joins[place].of if place in joins else ():
        found = Path(after)
        if found == start:
            return [place, start]
        if found != place and (way := _way_back(start, found, {key: join for key, join in joins.items() if key != place})):
            return [place, *way]
    return None


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

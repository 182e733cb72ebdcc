"""Several experiments in one file: what they have in common, and what each has of its own.

    name: paper
    common: {workload: {data: cifar100}}
    experiments:
      resnet18: {workload: {model: resnet18}}
      resnet34: {workload: {model: resnet34}, select: {source: resnet18}}

A file without `experiments` is one experiment, as it ever was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from syno.base.errors import SpecError, suggestion
from syno.base.files import check_name
from syno.base.validation import explained, read_mapping
from syno.config.experiment import RESULTS, Experiment, Settings
from syno.config.kept import FILE as KEPT
from syno.config.kept import in_place, is_kept
from syno.config.section import Section


class Several(Section):
    """Several experiments in one file. The results of each go to results/GROUP/NAME if it has no `output`."""

    name: str = ""  # GROUP; the file's name without its ending if not given
    common: Settings = {}  # what an experiment may have, for all but published data; groups are merged, level by level
    experiments: Mapping[str, Settings]  # by NAME, what each has of its own; it goes before what is common

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, given: str) -> str:
        return check_name(given, "the name of a group of experiments")

    @field_validator("experiments")
    @classmethod
    def _named(cls, given: Mapping[str, Settings]) -> Mapping[str, Settings]:
        if not given:
            raise ValueError("there is none; give names, each with an experiment's options")
        for name in given:
            check_name(name, "an experiment's name")
        return given


def load_experiments(given: Path | Mapping[str, Any], name: str = "", file: Path | None = None) -> dict[str, Experiment]:
    """All experiments of a file, by name: one, or those under `experiments`.

    Args:
        given: a YAML file, or what was read from one.
        name: of the experiment, or of the group, if it has none itself; the file's if not given.
        file: the file from which `given` was read. If it is the one that is kept beside results, then the results are there.

    Raises SpecError, which names the experiment, if one is wrong, shares its folder of results with another, or takes its
    operators from itself by way of others.
    """
    file = given if isinstance(given, Path) else file
    content = read_mapping(given, "an experiment", Experiment) if isinstance(given, Path) else given
    content = {"name": name or ("" if file is None else file.stem), **content}
    found = _several(content) if "experiments" in content else [Experiment(**content)]
    if file is not None and is_kept(file):
        found = [in_place(experiment, file.parent) for experiment in found]
    _check_folders(found)
    _check_sources(found)
    return {experiment.name: experiment for experiment in found}


def load_experiment(given: str | Path) -> Experiment:
    """The experiment that FILE means, or FILE:NAME where a file has several, or that of a folder of results.

    SpecError lists them if there is no such one.
    """
    file, name = parted(given)
    if (file / KEPT).is_file():
        file = file / KEPT
    found = load_experiments(file)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        raise SpecError(
            f"{file} has several experiments; name one, as in {file}:{next(iter(found))}; there are: {', '.join(found)}"
        )
    if name not in found:
        raise SpecError(f'{file} has no experiment "{name}"; there are: {", ".join(found)}.{suggestion(name, found)}')
    return found[name]


def parted(given: str | Path) -> tuple[Path, str | None]:
    """The file, and the name after its colon; None if there is none."""
    file, colon, name = str(given).rpartition(":")
    if colon and Path(file).is_file() and not Path(given).is_file():
        return Path(file), name
    return Path(given), None


def _several(content: Mapping[str, Any]) -> list[Experiment]:
    try:
        group = Several(**content)
    except ValidationError as error:
        raise SpecError(f'experiments of "{content["name"]}": {explained(error, Several)}') from None
    plans = {name: own if "artifact" in own else _merged(group.common, own) for name, own in group.experiments.items()}
    folders = {name: _folder(group.name, name, plan) for name, plan in plans.items()}
    return [_one(name, plan, folders) for name, plan in plans.items()]


def _folder(group: str, name: str, plan: Mapping[str, Any]) -> Path:
    return RESULTS / group / name if plan.get("output") is None else Path(str(plan["output"]))


def _one(name: str, plan: Mapping[str, Any], folders: Mapping[str, Path]) -> Experiment:
    """An experiment that needs nothing of the others: folders stand in place of their names."""
    if "name" in plan:
        raise SpecError(f'experiment "{name}": name: it is "{name}" already, by its place under experiments; leave it out')
    fields = {**plan, "name": name, "output": folders[name] if plan.get("output") is None else plan["output"]}
    select = plan.get("select")
    source = select.get("source") if isinstance(select, Mapping) else None
    if isinstance(source, str) and source in folders:
        fields["select"] = {**plan["select"], "source": str(folders[source])}
    elif isinstance(source, str) and not Path(source).exists() and (meant := suggestion(source, folders)):
        raise SpecError(
            f'experiment "{name}": select: source: neither an experiment here nor a folder is called "{source}".{meant}'
        )
    return Experiment(**fields)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`: groups in both are merged, everything else is replaced."""
    groups = [key for key in changes if isinstance(base.get(key), Mapping) and isinstance(changes[key], Mapping)]
    return {**base, **changes, **{key: _merged(base[key], changes[key]) for key in groups}}


def _check_folders(found: Iterable[Experiment]) -> None:
    owners: dict[Path, str] = {}
    for experiment in found:
        other = owners.setdefault(experiment.folder, experiment.name)
        if other != experiment.name:
            raise SpecError(
                f'experiment "{experiment.name}": its results go to {experiment.folder}, as those of "{other}" do; give each '
                "an output of its own, or none"
            )


def _check_sources(found: Iterable[Experiment]) -> None:
    """SpecError if an experiment is waiting for itself."""
    sources = {experiment.folder: experiment.select.source for experiment in found}
    for experiment in found:
        way, after = [experiment.folder], sources[experiment.folder]
        while after is not None and after not in way:
            way.append(after)
            after = sources.get(after)
        if after == experiment.folder:
            raise SpecError(
                f'experiment "{experiment.name}": select: source leads back to itself: '
                f"{' takes from '.join(map(str, [*way, after]))}; let one of them search"
            )

"""Files of experiments: with one or several experiments, and the file that is stored beside results.

Several experiments have common settings, and each has some of its own:

    name: paper
    common: {workload: {data: cifar100}}
    experiments:
      resnet18: {workload: {model: resnet18}}
      resnet34: {workload: {model: resnet34}, select: {source: resnet18}}
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, field_validator

from syno.base.errors import SpecError, suggestion
from syno.base.files import check_name, is_folder
from syno.base.registry import reading_only
from syno.base.validation import explained, read_mapping
from syno.config.dependencies import way_back
from syno.config.experiment import Experiment
from syno.config.groups import Section
from syno.config.kept_file import KEPT, completed, is_kept
from syno.config.kinds import RESULTS, AnyExperiment, Settings, experiment_kinds, kind_of, make_experiment
from syno.config.left_out import decided
from syno.config.specs import find_spec, merged
from syno.data.settings import setting_names
from syno.run import IMPORT_RECORD
from syno.space.presets import PRESETS
from syno.space.spec import OperatorSpec
from syno.train.settings import WorkloadSettings

SomeExperiment = TypeVar("SomeExperiment", bound=AnyExperiment)
RUN_HERE = "SYNO_RUN_HERE"  # an environment variable: the folders of results of the experiments that this user runs


class ExperimentGroup(Section):
    """Several experiments in one file. The results of each go to results/GROUP/NAME, unless it has `output`."""

    name: str = ""
    """GROUP; default: the file's name without its ending"""
    common: Settings = {}
    """options of all experiments except those of published data or joined results; mappings are merged at every level, and each
    setting in `data_settings` applies to the experiments whose data set has it
    """
    experiments: Mapping[str, Settings]
    """options of each experiment by its NAME, which override the common ones"""

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        return check_name(name, "the name of a group of experiments")

    @field_validator("experiments")
    @classmethod
    def _check_names(cls, experiments: Mapping[str, Settings]) -> Mapping[str, Settings]:
        if not experiments:
            raise ValueError("there is none; give names, each with an experiment's options")
        for name in experiments:
            check_name(name, "an experiment's name")
        return experiments


def load_experiments(source: Path | Mapping[str, Any], name: str = "", file: Path | None = None) -> dict[str, AnyExperiment]:
    """Return all experiments of a file by their names. Code that they name is imported when they run (`Experiment.use_code`).

    Args:
        source: a YAML file, or the mapping in it.
        name: name of the experiment or group if the content has none; default: the file's name.
        file: the file of `source`. If it is stored beside results, its folder is the folder of results.

    Raises SpecError, which names the experiment, if one is invalid, shares its folder of results with another, or depends on
    its own results through others.
    """
    file = source if isinstance(source, Path) else file
    content = read_mapping(source, "an experiment", Experiment) if isinstance(source, Path) else source
    content = {"name": name or ("" if file is None else file.stem), **completed(content, file)}
    experiments = _experiments_of_group(content) if "experiments" in content else [make_experiment(content)]
    if file is not None and is_kept(file):
        experiments = [in_place(experiment, file.parent) for experiment in experiments]
    if file is not None and is_result(str(file)):
        experiments = list(map(_of_results, experiments))
    _check_folders(experiments)
    _check_sources(experiments)
    experiments = [decided(experiment) for experiment in experiments]
    for experiment in experiments:
        experiment.check_beside(experiments)
    return {experiment.name: experiment for experiment in experiments}


def load_experiment(place: str | Path) -> Experiment:
    """Return the experiment of a file (FILE, or FILE:NAME in a file with several) or of a folder of results.

    Raises SpecError, which lists the experiments of the file, if there is no such experiment, or it has no operators.
    """
    return Experiment.checked(load_any(place))


def load_any(place: str | Path) -> AnyExperiment:
    """Return the experiment, of any kind, of a file (FILE, or FILE:NAME in a file with several) or of a folder of results.

    Raises SpecError, which lists the experiments of the file, if there is no such experiment.
    """
    file, name = parted(place)
    of_folder = (file / KEPT).is_file()
    if of_folder:
        file = file / KEPT
    elif is_folder(file):
        hint = f" It is an import of published data: syno artifact report {file}" if (file / IMPORT_RECORD).is_file() else ""
        raise SpecError(f"{file} is a folder without {KEPT}, so it holds no results of an experiment.{hint}")
    experiments = load_experiments(file)
    if name is None and len(experiments) == 1:
        experiment = next(iter(experiments.values()))
        return _of_results(in_place(experiment, file.parent)) if of_folder else experiment
    if name is None:
        raise SpecError(
            f"{file} has several experiments; name one, as in {file}:{next(iter(experiments))}; there are: "
            f"{', '.join(experiments)}"
        )
    if name not in experiments:
        raise SpecError(
            f'{file} has no experiment "{name}"; there are: {", ".join(experiments)}.{suggestion(name, experiments)}'
        )
    return experiments[name]


def parted(place: str | Path) -> tuple[Path, str | None]:
    """Split FILE:NAME into the file and the name; the name is None without a colon."""
    file, colon, name = str(place).rpartition(":")
    if colon and Path(file).is_file() and not Path(place).is_file():
        return Path(file), name
    return Path(place), None


def in_place(experiment: SomeExperiment, folder: Path) -> SomeExperiment:
    """Return the experiment with `folder` as its folder of results, which may have been moved since the file was written."""
    if experiment.folder.resolve() == folder.resolve():
        return experiment
    here, absolute = Path.cwd(), Path.cwd() / folder
    return experiment.model_copy(update={"output": absolute.relative_to(here) if absolute.is_relative_to(here) else absolute})


def run_here(folders: Iterable[Path]) -> None:
    """Mark these folders of results as this user's, for this process and its children.

    Their experiments then do not count as a stranger's (`Experiment.received`).
    """
    os.environ[RUN_HERE] = os.pathsep.join(str(folder.absolute()) for folder in folders)


def _of_results(experiment: AnyExperiment) -> AnyExperiment:
    is_run_here = str(experiment.folder.absolute()) in os.environ.get(RUN_HERE, "").split(os.pathsep)
    return experiment if is_run_here else experiment.received()


def find_space(place: str) -> OperatorSpec:
    """Return the spec for a preset's name, the path of a spec file, or an experiment (FILE, or FILE:NAME).

    The spec of an experiment has the experiment's name. If it depends on a network and a data set, these are loaded; but for a
    folder of results, or the file in it, no user code is imported.

    Raises SpecError if it does not exist, is invalid, or is an experiment without a space; RunsCodeError if user code of
    results would have to be run.
    """
    file, name = parted(place)
    if place in PRESETS or not (name is not None or _is_experiment(file)):
        return find_spec(place, "file (of a spec or an experiment)")
    experiment = load_any(place)
    if not isinstance(experiment, Experiment):
        raise SpecError(
            f'experiment "{experiment.name}" in {file} is of {experiment.content}, so it has no space of operators; '
            f"presets are: {', '.join(PRESETS)}"
        )
    with reading_only(f"the space of results ({place})") if is_result(place) else nullcontext():
        return experiment.operator_spec.with_(name=experiment.name)


def is_result(place: str) -> bool:
    """Return whether a path is a folder of results or lies in one; False for presets and for users' own files.

    Code that a user's own file names may be run to build its space, such as that of the network; code that results name may
    not.
    """
    file, _ = parted(place)
    if place in PRESETS:
        return False
    return (file / KEPT).is_file() or is_kept(file) or (file.exists() and file.resolve().is_relative_to(RESULTS.resolve()))


def is_own_file(place: str) -> bool:
    """Return whether a path is an experiment's file outside of results: written by a user in order to run it."""
    return parted(place)[0].is_file() and not is_result(place)


def _is_experiment(file: Path) -> bool:
    """Return whether a YAML file contains experiments, not a spec: it has an option that no spec has."""
    if not file.is_file():
        return False
    options = {"experiments", "common"}.union(*(kind.model_fields for kind in experiment_kinds()))
    return not (options - set(OperatorSpec.model_fields)).isdisjoint(read_mapping(file, "a spec", OperatorSpec))


def _experiments_of_group(content: Mapping[str, Any]) -> list[AnyExperiment]:
    try:
        group = ExperimentGroup(**content)
    except ValidationError as error:
        raise SpecError(f'experiments of "{content["name"]}": {explained(error, ExperimentGroup)}') from None
    plans = _plans(group)
    folders = {name: _folder(group.name, name, plan) for name, plan in plans.items()}
    kinds = {name: kind_of(plan) for name, plan in plans.items()}
    experiments = list[AnyExperiment]()
    for name, plan in plans.items():
        if "name" in plan:
            raise SpecError(f'experiment "{name}": name: it is "{name}" already, by its place under experiments; leave it out')
        fields = kinds[name].resolved(name, plan, folders, kinds)
        output = folders[name] if plan.get("output") is None else plan["output"]
        experiments.append(kinds[name](**{**fields, "name": name, "output": output}))
    return experiments


def _plans(group: ExperimentGroup) -> dict[str, Settings]:
    """Return the options of each experiment: the common ones, overridden by its own.

    A common setting of data applies to the experiments whose data sets have it. If no data set has it, it is passed to all, so
    that the error message lists the possible settings.
    """
    plans = dict(group.experiments)
    joint = {name: own for name, own in plans.items() if issubclass(kind_of(own), Experiment)}
    names = {name: setting_names(_data_of(merged(group.common, own))) for name, own in joint.items()}
    known = frozenset[str]().union(*(of_data for of_data in names.values() if of_data is not None))
    for name, own in joint.items():
        of_data, common = names[name], group.common
        settings = _data_settings(common)
        kept = {key: value for key, value in settings.items() if of_data is None or key in of_data or key not in known}
        if len(kept) < len(settings):
            common = {**common, "workload": {**common["workload"], "data_settings": kept}}
        plans[name] = merged(common, own)
    return plans


def _data_of(plan: Settings) -> str:
    workload = plan.get("workload")
    return str(workload.get("data", WorkloadSettings.model_fields["data"].default)) if isinstance(workload, Mapping) else ""


def _data_settings(plan: Settings) -> Mapping[str, Any]:
    workload = plan.get("workload")
    data_settings = workload.get("data_settings") if isinstance(workload, Mapping) else None
    return data_settings if isinstance(data_settings, Mapping) else {}


def _folder(group: str, name: str, plan: Mapping[str, Any]) -> Path:
    return RESULTS / group / name if plan.get("output") is None else Path(str(plan["output"]))


def _check_folders(experiments: Iterable[AnyExperiment]) -> None:
    """Raise SpecError if two experiments have the same folder of results."""
    owners: dict[Path, str] = {}
    for experiment in experiments:
        other = owners.setdefault(experiment.folder, experiment.name)
        if other != experiment.name:
            raise SpecError(
                f'experiment "{experiment.name}": its results go to {experiment.folder}, as those of "{other}" do; give each '
                "an output of its own, or none"
            )


def _check_sources(experiments: Sequence[AnyExperiment]) -> None:
    """Raise SpecError if experiments take operators from, or wait for, each other in a cycle."""
    searches = [experiment for experiment in experiments if isinstance(experiment, Experiment)]
    sources = {experiment.folder: experiment.sources for experiment in searches}
    waits = {experiment.folder: [*experiment.sources, *experiment.goes_first] for experiment in searches}
    names = {experiment.folder: experiment.name for experiment in searches}
    if way := way_back(sources):
        raise SpecError(
            f'experiment "{names[way[0]]}": select: source leads back to itself: {" takes from ".join(map(str, way))}; let one '
            "of them search"
        )
    if way := way_back(waits):
        raise SpecError(
            f'experiment "{names[way[0]]}": after leads back to itself: {" waits for ".join(map(str, way))}; let one '
            "of them go first"
        )

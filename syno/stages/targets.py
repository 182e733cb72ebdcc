"""The experiments that a run makes: those its targets name, and those whose operators or results these use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from syno.base.errors import SpecError
from syno.config import AnyExperiment, Experiment
from syno.run import MEASUREMENTS
from syno.stages.kinds import KINDS, source_of
from syno.stages.places import SCORES_FILE, SELECTED, TABLE
from syno.stages.workflow_stages import STAGES

MEASURED = TABLE.format(name=MEASUREMENTS, ending="parquet")


def check_place(folder: Path) -> None:
    """Raise SpecError if the folder cannot be created, since a file is in its place or above it."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SpecError(
                f"the results go to the folder {folder}, but {place} is a file; take it away, or give output: FOLDER"
            )


def asked_for(experiments: Mapping[str, AnyExperiment], targets: Collection[str]) -> list[AnyExperiment]:
    """Return the experiments that the targets name, and the experiments whose operators or results they use.

    Args:
        experiments: all experiments of the workflow, by folder.
        targets: targets of Snakemake. If one is not the name of an experiment, all experiments are returned.
    """
    names = {experiment.name: folder for folder, experiment in experiments.items()}
    if not targets or not set(targets) <= set(names):
        return list(experiments.values())
    found: dict[str, AnyExperiment] = {}
    left = [names[target] for target in targets]
    while left:
        folder = left.pop()
        if folder in experiments and folder not in found:
            found[folder] = experiments[folder]
            left += map(str, (*found[folder].sources, *found[folder].goes_first))
    return [experiment for folder, experiment in experiments.items() if folder in found]


def stages_asked_for(experiments: Mapping[str, AnyExperiment], targets: Collection[str]) -> dict[str, set[str]]:
    """Return the stages that have jobs in a run for these targets, by the experiment's name.

    An experiment from which others only take operators or results has only the stages up to its tables.

    Args:
        experiments: all experiments of the workflow, by folder.
        targets: names of experiments; without one, all experiments are requested.
    """
    left = [(folder, stage) for folder, one in experiments.items() if not targets or one.name in targets for stage in STAGES]
    found: dict[str, set[str]] = {}
    while left:
        folder, stage = left.pop()
        if folder not in experiments or stage in found.setdefault(experiments[folder].name, set()):
            continue
        one = experiments[folder]
        found[one.name].add(stage)
        left += [(folder, before) for before in STAGES[stage].after]
        if STAGES[stage].jobs(one, ()):
            left += [(str(other), before) for other in (*one.sources, *one.goes_first) for before in STAGES[stage].elsewhere]
    return found


def check_source(experiment: AnyExperiment, experiments: Collection[str]) -> None:
    """Raise SpecError if an experiment takes operators, continues, or joins results from a folder that does not exist.

    Args:
        experiment: the experiment.
        experiments: folders of all experiments of the workflow, whose results it makes itself.
    """
    for folder in experiment.goes_first:
        if str(folder) not in experiments and not (folder / SCORES_FILE).is_file():
            raise SpecError(
                f'experiment "{experiment.name}": after: {folder} is neither an experiment in the same file nor a folder of '
                f"results: {folder / SCORES_FILE} is not there; give the folder of an experiment that has trained operators"
            )
    takes_operators = isinstance(experiment, Experiment)  # experiments of other kinds take tables
    for source in experiment.sources:
        if str(source) in experiments or (takes_operators and source_of(source) is not None):
            continue
        option, file = ("select: source", SELECTED) if takes_operators else (f"{experiment.option}: of", MEASURED)
        if (source / file).is_file():
            continue
        makers = " or ".join(f"`{maker}`" for maker in ("syno tables", *(kind.made_by for kind in KINDS.values())))
        advice = "give the folder of an experiment that has selected operators" if takes_operators else f"{makers} makes it"
        raise SpecError(
            f'experiment "{experiment.name}": {option}: {source} is neither an experiment in the same file nor a folder of '
            f"results: {source / file} is not there; {advice}"
        )

"""What the Snakemake workflow does beside starting commands."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from syno.artifact.imported import is_published
from syno.base.errors import SpecError
from syno.config import Experiment
from syno.stages.select import FILE as SELECTED


def use_this_environment() -> None:
    """Let the commands of rules be those beside the Python that runs now, whatever the PATH says.

    Environments that rules name are activated later, and go before. Threads of a process that wait do not take cores from
    others (OMP_WAIT_POLICY).
    """
    here = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", "").split(os.pathsep)
    if here not in places:
        os.environ["PATH"] = os.pathsep.join([here, *places])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def check_place(folder: Path) -> None:
    """SpecError if there cannot be such a folder, as a file is in its place or above it."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SpecError(
                f"the results go to the folder {folder}, but {place} is a file; take it away, or give output: FOLDER"
            )


def before_planning(workflow: Any, action: Callable[[], None]) -> None:
    """Let Snakemake call `action` when it has read its command line, before it plans the jobs of a run or of a dry run.

    It has no such hook: `onstart` comes when jobs are planned, and the Snakefile is read before targets are known. A warning
    says so if this version of Snakemake plans in another way; then nothing is called.

    Args:
        workflow: Snakemake's.
        action: what it raises ends the run.
    """
    plan = getattr(workflow, "_prepare_dag", None)
    if plan is None:
        warnings.warn("this version of Snakemake plans in another way: results are not looked over for damage", stacklevel=2)
        return

    def planned(*given: Any, **named: Any) -> Any:
        if workflow.executor_plugin is not None:  # else the plan is only shown
            action()
        return plan(*given, **named)

    workflow._prepare_dag = planned


def asked_for(experiments: Mapping[str, Experiment], targets: Collection[str]) -> list[Experiment]:
    """Return the experiments whose results are asked for, and those whose operators they take.

    Args:
        experiments: all of a workflow, by folder.
        targets: what Snakemake was asked for. If that is anything but names of experiments, it may be of all of them.
    """
    names = {experiment.name: folder for folder, experiment in experiments.items()}
    if not targets or not set(targets) <= set(names):
        return list(experiments.values())
    found: dict[str, Experiment] = {}
    left = [names[target] for target in targets]
    while left:
        folder = left.pop()
        if folder in experiments and folder not in found:
            found[folder] = experiments[folder]
            left.append(str(found[folder].select.source))
    return [experiment for folder, experiment in experiments.items() if folder in found]


def check_source(experiment: Experiment, experiments: Collection[str]) -> None:
    """Raise SpecError if an experiment takes its operators from a folder that is not there.

    Args:
        experiment: which may have a source.
        experiments: the folders of all experiments of the workflow, which makes what is missing there.
    """
    source = experiment.select.source
    if source is None or str(source) in experiments or is_published(source) or (source / SELECTED).is_file():
        return
    raise SpecError(
        f'experiment "{experiment.name}": select: source: {source} is neither an experiment in the same file nor a folder of '
        f"results: {source / SELECTED} is not there; give the folder of an experiment that has selected operators"
    )

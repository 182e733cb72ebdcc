"""Functions that the Snakefile calls beside the commands of its rules.

Snakemake's plugin for Slurm (2.5 to 2.8, at least) misreads three answers of Slurm, so that a run never ends;
`understand_slurm` mends this. A cancelled job is "CANCELLED by 0" to `sacct`, which the plugin takes for a job that still runs.
After several failed queries in a row, the plugin forgets its jobs. A job that lost its node is NODE_FAIL also while it waits
for another node: the plugin asks for its node, gets "None assigned", and excludes that from later submissions, which fail.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.results import MEASUREMENTS
from syno.stages.kinds import source_of
from syno.stages.places import SCORES_FILE, SELECTED, TABLE

PLUGIN = "snakemake_executor_plugin_slurm"
QUERY = "query_job_status"
LOST = "NODE_FAIL"
MEASURED = TABLE.format(name=MEASUREMENTS, ending="parquet")

# From a command of Slurm and a logger to the state of each job by its id, and the seconds taken; (None, None) if it failed.
Query: TypeAlias = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]


def use_this_environment() -> None:
    """Let rules run the commands beside the current Python, whatever the PATH says.

    Environments that rules name are activated later and have priority. OMP_WAIT_POLICY keeps waiting threads from using cores.
    """
    here = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", "").split(os.pathsep)
    if here not in places:
        os.environ["PATH"] = os.pathsep.join([here, *places])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def check_place(folder: Path) -> None:
    """Raise SpecError if the folder cannot be created, since a file is in its place or above it."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SpecError(
                f"the results go to the folder {folder}, but {place} is a file; take it away, or give output: FOLDER"
            )


def before_planning(workflow: Any, action: Callable[[], None]) -> None:
    """Let Snakemake call `action` after it has read its command line, before it plans the jobs of a run or dry run.

    Snakemake has no such hook: `onstart` runs after planning, and the Snakefile is read before targets are known. If this
    version of Snakemake plans in another way, a warning says so, and nothing is called.

    Args:
        workflow: Snakemake's workflow.
        action: the function; its errors end the run.
    """
    plan = getattr(workflow, "_prepare_dag", None)
    if plan is None:
        warnings.warn("this version of Snakemake plans in another way: results are not looked over for damage", stacklevel=2)
        return

    def planned(*given: Any, **named: Any) -> Any:
        if workflow.executor_plugin is not None:  # else the plan is only printed
            action()
        return plan(*given, **named)

    workflow._prepare_dag = planned


def asked_for(experiments: Mapping[str, Experiment], targets: Collection[str]) -> list[Experiment]:
    """Return the experiments whose results are requested, and those whose operators or results they take.

    Args:
        experiments: all experiments of the workflow, by folder.
        targets: targets of Snakemake. If one is not the name of an experiment, all experiments are returned.
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
            left += map(str, (found[folder].select.source, *found[folder].goes_first, *joined_folders(found[folder])))
    return [experiment for folder, experiment in experiments.items() if folder in found]


def joined_folders(experiment: Experiment) -> list[Path]:
    """Return the folders of results that an experiment joins; none if it is no join."""
    return [] if experiment.join is None else list(map(Path, experiment.join.of))


def check_source(experiment: Experiment, experiments: Collection[str]) -> None:
    """Raise SpecError if an experiment takes operators, goes on, or joins results from a folder that does not exist.

    Args:
        experiment: the experiment.
        experiments: folders of all experiments of the workflow; what is missing there, the workflow makes.
    """
    for folder in joined_folders(experiment):
        if str(folder) not in experiments and not (folder / MEASURED).is_file():
            raise SpecError(
                f'experiment "{experiment.name}": join: of: {folder} is neither an experiment in the same file nor a folder of '
                f"results: {folder / MEASURED} is not there; `syno tables` or `syno artifact import` makes it"
            )
    for folder in experiment.goes_first:
        if str(folder) not in experiments and not (folder / SCORES_FILE).is_file():
            raise SpecError(
                f'experiment "{experiment.name}": after: {folder} is neither an experiment in the same file nor a folder of '
                f"results: {folder / SCORES_FILE} is not there; give the folder of an experiment that has trained operators"
            )
    source = experiment.select.source
    if source is None or str(source) in experiments or source_of(source) is not None or (source / SELECTED).is_file():
        return
    raise SpecError(
        f'experiment "{experiment.name}": select: source: {source} is neither an experiment in the same file nor a folder of '
        f"results: {source / SELECTED} is not there; give the folder of an experiment that has selected operators"
    )


# ---- Slurm -------------------------------------------------------------------------------------------------------------


def understand_slurm() -> None:
    """Replace the query of Snakemake's plugin for Slurm. Does nothing if there is no plugin, or it has another query.

    Call it in the Snakefile: Snakemake has imported its plugins by then.
    """
    plugin = sys.modules.get(PLUGIN)
    if hasattr(plugin, QUERY):
        setattr(plugin, QUERY, understood(getattr(plugin, QUERY)))


def understood(query: Query) -> Query:
    """Return a query whose states are one word, and that of the queue for a job that waits there again.

    Jobs of unknown state are left out, and asked for again later; if the query fails, these are all jobs.
    """

    async def states(command: str, logger: Any) -> tuple[dict[str, str], float]:
        answer, seconds = await query(command, logger)
        if answer is None:
            logger.warning("Slurm does not say what has become of the jobs; it is asked again.")
        found = {job: state.partition(" ")[0] for job, state in (answer or {}).items()}
        if LOST in found.values():
            queue = await _queue()
            now = {job: queue.get(job, LOST) for job, state in found.items() if state == LOST} if queue is not None else {}
            found = {job: state for job, state in found.items() if state != LOST} | now
        return found, seconds or 0.0

    return states


async def _queue() -> dict[str, str] | None:
    """Return the states of this user's jobs that wait or run, by id; None if Slurm does not answer."""
    command = ("squeue", "--me", "--noheader", "--format=%i %T")
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    printed, _ = await process.communicate()
    return None if process.returncode else dict(line.split(" ", 1) for line in printed.decode().splitlines())

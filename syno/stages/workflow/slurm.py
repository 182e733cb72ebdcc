"""The states of jobs on Slurm, as Snakemake's plugin should read them.

The plugin (2.5 to 2.8, at least) misreads three answers of Slurm, so that a run never ends. A cancelled job is "CANCELLED by 0"
to `sacct`, which the plugin takes for a job that still runs. After failed queries in a row, the plugin forgets its jobs.
A job that lost its node is NODE_FAIL also while it waits for another node: the plugin asks for its node, gets "None assigned",
and excludes that from later submissions, which fail.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from syno.stages.workflow.patches import SLURM_STATES, apply

LOST = "NODE_FAIL"
# From a command of Slurm and a logger to the state of each job by its id, and the seconds taken; (None, None) if it failed.
Query: TypeAlias = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]


def understand_slurm() -> None:
    """Replace the job query of Snakemake's plugin for Slurm, if Snakemake has imported the plugin before the Snakefile."""
    apply(SLURM_STATES, understood)


def understood(query: Query) -> Query:
    """Wrap a query so that each state is one word, and a requeued job has its state in the queue.

    Jobs of unknown state are left out, and asked for again later; if the query fails, all jobs are.
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

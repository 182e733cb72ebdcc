"""How Snakemake's plugin for Slurm learns what has become of its jobs.

The plugin (2.5 to 2.8, at least) has three ways never to end well. A job that was cancelled is "CANCELLED by 0" to `sacct`,
which the plugin takes for a state in which jobs still run. After some queries in a row that failed, it forgets its jobs. And a
job that lost its node is NODE_FAIL also while it waits for another one: the plugin asks for its node, which is "None assigned",
and excludes that from all further submissions, each of which then fails.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

PLUGIN = "snakemake_executor_plugin_slurm"
QUERY = "query_job_status"
LOST = "NODE_FAIL"

# From a command for Slurm and a logger to each job's state, by id, and the seconds that it took; twice None if it failed.
Query: TypeAlias = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]


def understand_slurm() -> None:
    """Let the plugin understand every answer of Slurm, and that there is none; nothing if it isn't there, or asks otherwise.

    It is for the Snakefile: Snakemake has imported its plugins by then.
    """
    plugin = sys.modules.get(PLUGIN)
    if hasattr(plugin, QUERY):
        setattr(plugin, QUERY, understood(getattr(plugin, QUERY)))


def understood(query: Query) -> Query:
    """The same query, with states of one word, and those of the queue for jobs that are back in it.

    A job whose state is not known is left out, and asked for again later; if the query fails, these are all.
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
    """The states of this user's jobs that wait or run, by their ids; None if Slurm does not say."""
    command = ("squeue", "--me", "--noheader", "--format=%i %T")
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    printed, _ = await process.communicate()
    return None if process.returncode else dict(line.split(" ", 1) for line in printed.decode().splitlines())

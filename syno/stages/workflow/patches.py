"""The patches of other packages, each with the upstream issue that would make it superfluous."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Patch:
    """A patch of another package.

    Attributes:
        package: the distribution.
        module: the module in it.
        attributes: names in the module of the attributes that are replaced.
        issue: the issue of the package that the patch waits for.
        until: the first version that needs no patch; empty while there is none.
    """

    package: str
    module: str
    attributes: tuple[str, ...]
    issue: str
    until: str = ""


# An error of the input is the same in each attempt, but `retries` knows no exit codes.
RESTARTS = Patch(
    "snakemake",
    "snakemake.jobs",
    ("Job.restart_times", "GroupJob.restart_times"),
    "https://github.com/snakemake/snakemake/issues/2441",
)
# A workflow on Slurm never ends after queries that failed.
SLURM_STATES = Patch(
    "snakemake-executor-plugin-slurm",
    "snakemake_executor_plugin_slurm",
    ("query_job_status",),
    "https://github.com/snakemake/snakemake-executor-plugin-slurm/issues/207",
)
PATCHES = (RESTARTS, SLURM_STATES)


def apply(patch: Patch, changed: Callable[[Any], Any]) -> None:
    """Replace each attribute that a patch names by the result of `changed(attribute)`.

    Does nothing if the module has not been imported, or lacks the attribute, as another version of the package may.
    """
    module = sys.modules.get(patch.module)
    for path in patch.attributes:
        owner, _, name = path.rpartition(".")
        place = getattr(module, owner, None) if owner else module
        if name in getattr(place, "__dict__", {}):
            setattr(place, name, changed(vars(place)[name]))

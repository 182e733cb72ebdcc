"""A run of the workflow: results are checked before Snakemake plans jobs, and listed in a manifest at the end."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from typing import Any

from syno.base.errors import SynoError
from syno.config import AnyExperiment
from syno.config.left_out import record_devices
from syno.stages.opening import keep_config
from syno.stages.places import REPORT, SELECTED
from syno.stages.restore import deleted, look_over, write_manifest
from syno.stages.selection import read_selection, why_none
from syno.stages.targets import asked_for, check_source
from syno.stages.workflow.failures import FailedJobs, say_at_the_end, tell_failures_apart
from syno.stages.workflow.fork_server import start_fork_server
from syno.stages.workflow.process import end_with_program


class WorkflowRun:
    """A run or dry run of the workflow. In a job of a cluster, which is a workflow of its own, it does nothing.

    Args:
        workflow: Snakemake's workflow.
        experiments: all experiments of the workflow, by folder.
    """

    def __init__(self, workflow: Any, experiments: Mapping[str, AnyExperiment]) -> None:
        self._workflow, self._experiments = workflow, experiments
        self._is_planned = not workflow.is_main_process
        self._is_module = not workflow.modifier.is_main_snakefile()
        self._failed = tell_failures_apart() if workflow.is_main_process else FailedJobs()
        if workflow.is_main_process:
            end_with_program()

    @property
    def asked_for(self) -> list[AnyExperiment]:
        """The experiments that the targets name, and the experiments whose results these use."""
        return asked_for(self._experiments, self._workflow.dag_settings.targets)

    def plan(self) -> None:
        """Look over the results, once, and let Snakemake make damaged and deleted files again that the targets depend on.

        Input functions call it: these are the first thing that Snakemake evaluates once it knows its targets, and it looks at
        files only after them. `onstart` runs when all jobs are planned. An input error ends the process with its one line,
        which Snakemake would show with a traceback.
        """
        workflow = self._workflow
        if self._is_planned or workflow.executor_plugin is None or workflow.touch:  # without executor, the plan is only printed
            return
        self._is_planned = True
        try:
            for experiment in self.asked_for:
                check_source(experiment, self._experiments)
            found = [look_over(experiment, change=not workflow.dryrun) for experiment in self.asked_for]
            # Snakemake does not miss a deleted file from which something newer than its own inputs has been made.
            found += [list(deleted(experiment)) for experiment in self.asked_for]
            if not workflow.dryrun and self._is_module:
                self.start()  # Snakemake ignores `onstart` and the like of a module
                atexit.register(self._write_manifests, complete=False)
        except SynoError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        workflow.dag.forcefiles.update(str(file) for files in found for file in files)

    def start(self) -> None:
        """Write the settings that jobs read. Raises a SynoError if results in their place are of other settings."""
        for experiment in self.asked_for:
            keep_config(experiment)
            record_devices(experiment)
        start_fork_server(self._workflow)

    def end(self, complete: bool) -> None:
        """Write the manifests of the results, and print the paths of the pages, or the failed jobs' messages.

        Args:
            complete: whether all jobs have succeeded.
        """
        self._write_manifests(complete)
        if not complete:
            say_at_the_end(self._failed)
        elif self._workflow.is_main_process:
            for experiment in self.asked_for:
                page, selected = experiment.folder / REPORT, experiment.folder / SELECTED
                if selected.is_file() and (reason := why_none(read_selection(selected))) is not None:
                    print(f"{experiment.name}: {reason}", file=sys.stderr)
                if page.is_file():
                    print(f"The report: file://{page.absolute()}", file=sys.stderr)

    def _write_manifests(self, complete: bool) -> None:
        for experiment in self.asked_for:
            write_manifest(experiment, complete=complete)

"""The experiments of a workflow, from Snakemake's config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.config import AnyExperiment, load_experiments
from syno.config.files import run_here
from syno.config.left_out import undecided
from syno.stages.targets import check_place
from syno.stages.workflow.process import asks_for_other_machines

NAME = "experiment"  # of an experiment without a name, of a module whose config is not from a file


def read_experiments(workflow: Any, config: Mapping[str, Any]) -> dict[str, AnyExperiment]:
    """Return the experiments of a config by their folders of results, which identify them, as in `{folder}/data.json`.

    Missing optional devices are left out. Jobs of a cluster read this decision from a file.

    Args:
        workflow: Snakemake's workflow.
        config: the config that Snakemake has read from its config files and command line.

    Raises a SynoError if an experiment is invalid, or cannot run here.
    """
    file = next(map(Path, workflow.configfiles), None)
    found = list(load_experiments(config, NAME if file is None else file.stem, file).values())
    for experiment in found:
        check_place(experiment.use_code().folder)
    run_here(experiment.folder for experiment in found)
    if workflow.is_main_process and any(map(undecided, found)):
        from syno.stages.needs import with_devices  # takes long to import

        found = with_devices(found, elsewhere=asks_for_other_machines(workflow))
    return {str(experiment.folder): experiment for experiment in found}

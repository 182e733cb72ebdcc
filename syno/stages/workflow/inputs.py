"""Input functions of rules: the files that jobs read, by the experiment and the selected operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from syno.base.files import ORIGINAL
from syno.base.identity import OWN_CODE, version_of_code
from syno.config import Experiment
from syno.model.networks import Network
from syno.stages.fastest import compared_measurements
from syno.stages.kinds import kind_of, source_of
from syno.stages.places import RIVAL, SCORES_FILE, SELECTED, training_file
from syno.stages.select import compared_trainings
from syno.stages.selection import read_selected
from syno.stages.targets import MEASURED
from syno.stages.train import trained_original
from syno.stages.workflow_stages import STAGES, WorkflowStage, files_on_the_way


class JobFiles:
    """Input functions for the rules: the files that the jobs of experiments read.

    Args:
        workflow: Snakemake's workflow.
        checkpoints: Snakemake's checkpoints.
        experiments: all experiments, by folder.
    """

    def __init__(self, workflow: Any, checkpoints: Any, experiments: Mapping[str, Experiment]) -> None:
        self._workflow, self._checkpoints, self._experiments = workflow, checkpoints, experiments
        self._settings = cache(self._settings_text)

    def of(self, folder: str, *stages: str) -> list[str]:
        """Return the files that the jobs of these stages write and later stages read."""
        experiment = self._experiments[folder]
        return [str(file) for name in stages for file in STAGES[name].paths(experiment, self._networks(folder, STAGES[name]))]

    def results(self, folder: str) -> list[str | Callable[[Any], list[str]]]:
        """Return all results of an experiment, as the input of a rule without wildcards."""
        experiment = self._experiments[folder]
        per_network = [name for name, stage in STAGES.items() if stage.is_per_network]
        # Trainings of the original and the baselines, and rivals, need not wait for the search.
        early = [
            *STAGES["train"].paths(experiment, STAGES["train"].networks(experiment, [])),
            *STAGES["rival"].paths(experiment),
        ]
        # Snakemake makes a deleted intermediate file again only if the file is requested.
        return [*map(str, (*files_on_the_way(experiment), *early)), lambda wildcards: self.of(folder, *per_network)]

    def selectable(self, folder: str) -> list[str]:
        """Return the files that operators come from: frozen trials, another experiment's selection and scores, or an import."""
        experiment = self._experiments[folder]
        source = experiment.select.source
        if source is None:
            return [*self.of(folder, "freeze"), *map(str, compared_trainings(experiment))]
        known = self._experiments.get(str(source))
        kind = source_of(source) if known is None else kind_of(known)
        files = (SELECTED, SCORES_FILE) if kind is None else kind.operator_files
        return [str(source / file) for file in files]

    def selected_from(self, folder: str) -> list[str]:
        """Return the input of `select`: the files of `selectable`; by latency, the shortlist and its measurements."""
        if not self._experiments[folder].compares_latencies:
            return self.selectable(folder)
        listed = self._chosen_keys(folder, "shortlist")
        if listed is None:  # in a dry run
            return self.of(folder, "shortlist", "tune")
        return [*self.of(folder, "shortlist"), *map(str, compared_measurements(self._experiments[folder], listed))]

    def experiments_before(self, folder: str) -> list[str]:
        """Return the tables of the experiments whose results this experiment continues."""
        return [str(before / SCORES_FILE) for before in self._experiments[folder].goes_first]

    def rivals_before(self, folder: str) -> list[str]:
        """Return the records of the rivals with whose results a search begins; [] if it begins without rivals."""
        experiment = self._experiments[folder]
        names = experiment.rival_names if experiment.begins_with_rivals else ()
        return [str(experiment.folder / RIVAL.format(rival=name)) for name in names]

    def original_before(self, folder: str, key: str, seed: str) -> list[str]:
        """Return the record of the original's training with whose weights a training begins; [] for new weights."""
        file = trained_original(self._experiments[folder], key, int(seed))
        return [] if file is None else [str(file)]

    def trained_before(self, folder: str, rival: str) -> list[str]:
        """Return the records of the trainings that a rival begins with: of the original, or of the network that it converts.

        A mixture also begins with the choice of operators.
        """
        experiment = self._experiments[folder]
        is_mixture = rival in experiment.mixture_names
        key = ORIGINAL if is_mixture or rival in experiment.rival_names else Network.parse(rival).name
        found = [str(training_file(experiment, key, seed)) for seed in experiment.train.seeds]
        return [*found, *(self.of(folder, "choose") if is_mixture else [])]

    def elsewhere(self, folder: str, stage: str) -> list[str]:
        """Return the files of other experiments that a stage reads; the tables of experiments outside of the workflow."""
        found = []
        for other in map(str, self._experiments[folder].sources):
            found += self.of(other, *STAGES[stage].elsewhere) if other in self._experiments else [f"{other}/{MEASURED}"]
        return found

    def settings(self, folder: str, part: str, key: str = "") -> str:
        """Return the settings of a stage as text, with a checksum of user code in them and in the baseline `key`."""
        return self._settings(folder, part, key)

    def _settings_text(self, folder: str, part: str, key: str) -> str:
        experiment = self._experiments[folder]
        baseline = experiment.baselines.get(key) if key else None
        own = {} if baseline is None else version_of_code(baseline.operator)
        return experiment.part(part, code=True) + own.get(OWN_CODE, "")

    def _networks(self, folder: str, stage: WorkflowStage) -> list[str]:
        """Return the keys of the networks of a stage's jobs, once operators are selected; none if it has no such jobs."""
        experiment = self._experiments[folder]
        if not (stage.is_per_network and stage.paths(experiment, stage.networks(experiment))):
            return []
        if stage.is_of_shortlist and experiment.compares_latencies:
            return stage.networks(experiment, shortlisted=self._chosen_keys(folder, "shortlist"))
        return stage.networks(experiment, selected=self._chosen_keys(folder, "select"))

    def _chosen_keys(self, folder: str, stage: str) -> list[str] | None:
        """Return the keys of the operators that a checkpoint chose; None in a dry run before the checkpoint."""
        if self._workflow.dryrun and not Path(folder, STAGES[stage].files[0]).exists():
            return None
        file = Path(getattr(self._checkpoints, stage).get(folder=folder).output[0])
        return [selected.key for selected in read_selected(file)]

"""The settings of the results in a folder: kept beside them, and compared with those of an experiment that continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syno.base.addresses import without_passwords
from syno.base.errors import SpecError, SynoError
from syno.base.files import write_whole
from syno.base.registry import own_paths
from syno.base.validation import named_differences
from syno.config import AnyExperiment, Experiment
from syno.config.files import in_place
from syno.config.kept_file import HEAD, KEPT
from syno.config.left_out import decided
from syno.space.space import Space
from syno.stages.data import DataRecord
from syno.stages.opening import open_study
from syno.stages.places import DATA, FROZEN, SELECTED

OWNER_ONLY, OF_OTHERS = 0o600, 0o077  # permissions of a file
MAY_CHANGE = ("n_trials", "heartbeat_seconds", "grace_seconds")  # settings of a study that may change later


def keep_config(experiment: AnyExperiment) -> Path:
    """Write the experiment with all defaults beside its results; returns the file.

    Raises SpecError, and does not change the file, if the results are of another experiment, or the study has trials of other
    settings.
    """
    check_goes_on(experiment)
    return write_kept(experiment)


def write_kept(experiment: AnyExperiment) -> Path:
    """Write the experiment beside its results without a check; returns the file.

    Jobs read the storage's address in it, so a password in this address stays there, and only the file's owner can read it.
    """
    import yaml

    file = experiment.folder / KEPT
    text = f"{HEAD}{yaml.safe_dump(experiment.model_dump(mode='json'), sort_keys=False)}"
    is_secret = without_passwords(text) != text
    is_written = file.is_file() and file.read_bytes() == text.encode()
    if not is_written or (is_secret and file.stat().st_mode & OF_OTHERS):
        write_whole(file, text, mode=OWNER_ONLY if is_secret else None)
    return file


def read_kept(folder: Path) -> AnyExperiment | None:
    """Return the experiment that is kept beside results; None if there is none, or the file is damaged."""
    try:
        return decided(in_place(AnyExperiment.load(folder / KEPT), folder))
    except SynoError:
        return None


def check_goes_on(experiment: AnyExperiment) -> None:
    """Raise SpecError, with the settings that differ, if the experiment cannot continue with the results in its folder."""
    _check_placed(experiment)
    folder, kept = experiment.folder, read_kept(experiment.folder)
    if kept is None:
        if folder.is_dir() and isinstance(experiment, Experiment) and experiment.searches and _has_trials(experiment):
            open_study(experiment, Space(experiment.operator_spec))  # raises if the study has other settings
        return
    if kept.name != experiment.name:
        if any((folder / part).exists() for part in (FROZEN, SELECTED, "train")):
            raise SpecError(
                f'{folder} holds results of the experiment "{kept.name}", as {folder / KEPT} says; give "{experiment.name}" '
                "another folder (output: FOLDER, or leave output out)"
            )
        return
    if not (isinstance(kept, Experiment) and isinstance(experiment, Experiment)) or not (kept.searches and experiment.searches):
        return
    found = differences_of_searches(kept, experiment)
    if found and _has_trials(experiment):
        raise SpecError(
            f"{folder} holds trials of other settings, as {folder / KEPT} says: {'; '.join(found)}. Take these settings back "
            f"to go on with that study, or give the experiment another name to begin a new one"
        )


def check_shown(experiment: AnyExperiment) -> None:
    """Raise SpecError, with the settings that differ, if existing results are of other settings."""
    _check_placed(experiment)
    folder, kept = experiment.folder, read_kept(experiment.folder)
    if kept is None:
        return
    found = named_differences(_settings_of_results(kept), _settings_of_results(experiment))
    if isinstance(kept, Experiment) and isinstance(experiment, Experiment) and kept.searches and experiment.searches:
        found = list(dict.fromkeys([*differences_of_searches(kept, experiment), *found]))  # both name the workload
    if found:
        raise SpecError(
            f"the results in {folder} are of other settings, as {folder / KEPT} says: {'; '.join(found)}. Give {folder} in "
            "place of the config to see them, or give another name to begin an experiment of these settings"
        )


def _check_placed(experiment: AnyExperiment) -> None:
    """Raise SpecError if the network of the results has another operator of an experiment that went first."""
    file = experiment.folder / DATA
    if not isinstance(experiment, Experiment) or experiment.after is None or experiment.workload is None:
        return
    if not (experiment.workload.placed and file.is_file()):
        return
    there = list(dict.fromkeys(DataRecord.read(file).placed.values()))
    here = list(dict.fromkeys(one.replacement.name for one in experiment.workload.placed))
    if there and there != here:
        raise SpecError(
            f"the results in {experiment.folder} are of a network with {' and '.join(there)}, and that of the experiment would "
            f"have {' and '.join(here)}. To go on with them, name the operator, as in after: {{source: "
            f"{experiment.after.source}, operator: {there[-1]}}}, or give the experiment another name to begin a new one"
        )


def differences_of_searches(kept: Experiment, current: Experiment) -> list[str]:
    """Return the differences between settings that trials depend on, in words; empty if the study can continue.

    Where they name code of one's own, which is not imported to look at results, they are compared as they are written.
    """
    there, here = _settings_of_search(kept), _settings_of_search(current)
    if there == here or any(own_paths([there, here])):
        return named_differences(there, here)
    try:  # the texts differ, but their meaning may be the same
        return named_differences({**there, **_meaning_of_search(kept)}, {**here, **_meaning_of_search(current)})
    except SynoError:  # for example, the data is not on this machine
        return named_differences(there, here)


def _settings_of_search(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that all trials of a study depend on, as written."""
    whole: dict[str, Any] = json.loads(experiment.part("search"))
    study = {name: value for name, value in whole["study"].items() if name not in MAY_CHANGE}
    goal = {"goal": {**whole["goal"], "most_screened": None}} if whole["goal"] is not None else {}
    return {**whole, "study": study, **goal}


def _meaning_of_search(experiment: Experiment) -> dict[str, Any]:
    """Return the meaning of those settings that can be written in several ways."""
    return {
        "spec": experiment.operator_spec.model_dump(mode="json"),
        "relative_budget": None,  # it is in the spec
        "evaluate": experiment.evaluation,
        "reward": experiment.make_reward().settings(),
        "policy": {"name": experiment.policy_name, **experiment.policy_settings.model_dump(mode="json")},
    }


def _settings_of_results(experiment: AnyExperiment) -> dict[str, Any]:
    """Return the settings that tables, figures and the page state, apart from those of the search."""
    if not isinstance(experiment, Experiment) or experiment.workload is None:
        return {}
    whole = experiment.model_dump(mode="json")
    told = {"workload": whole["workload"], "train": whole["train"], "tune": {"latency": whole["tune"]["latency"]}}
    return {**told, "select": {"source": whole["select"]["source"]}}


def _has_trials(experiment: Experiment) -> bool:
    """Return whether the study has a trial that was evaluated."""
    from syno.search.storage.store import read_trials

    try:
        trials = read_trials(experiment.storage, experiment.name)
    except SpecError:  # there is no study, or `open_study` says what is wrong
        return False
    return any(trial.state.name in ("COMPLETE", "PRUNED") for trial in trials)

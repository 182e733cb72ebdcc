"""The settings that the results in a folder are of: kept beside them, and compared with those that are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syno.base.errors import SpecError, SynoError
from syno.base.files import write_whole
from syno.config import Experiment
from syno.config.files import HEAD, KEPT, in_place

MAY_CHANGE = ("n_trials", "pruner", "heartbeat_seconds", "grace_seconds")  # of a study, while it goes on


def keep_config(experiment: Experiment) -> Path:
    """Write the experiment, defaults and all, beside its results, unless it is there already; returns the file.

    Raises SpecError, and leaves the file as it is, if the results there are of another experiment, or the study there has
    trials of other settings.
    """
    check_goes_on(experiment)
    return write_kept(experiment)


def write_kept(experiment: Experiment) -> Path:
    """Write the experiment beside its results, whatever they are of; returns the file."""
    import yaml

    file = experiment.folder / KEPT
    text = f"{HEAD}{yaml.safe_dump(experiment.model_dump(mode='json'), sort_keys=False)}"
    if not file.is_file() or file.read_bytes() != text.encode():
        write_whole(file, text)
    return file


def read_kept(folder: Path) -> Experiment | None:
    """Return the experiment that is kept beside results; None if there is none, or the file is damaged."""
    try:
        return in_place(Experiment.load(folder / KEPT), folder)
    except SynoError:
        return None


def check_goes_on(experiment: Experiment) -> None:
    """Raise SpecError if this experiment cannot go on with what is in its folder of results; the message says what differs."""
    folder, kept = experiment.folder, read_kept(experiment.folder)
    if kept is None:
        if folder.is_dir() and experiment.searches and _has_trials(experiment):
            _open_study(experiment)  # it has its settings, too
        return
    if kept.name != experiment.name:
        if any((folder / part).exists() for part in ("trials.parquet", "selected.json", "train")):
            raise SpecError(
                f'{folder} holds results of the experiment "{kept.name}", as {folder / KEPT} says; give "{experiment.name}" '
                "another folder (output: FOLDER, or leave output out)"
            )
        return
    if not (kept.searches and experiment.searches):
        return
    found = differences_of_searches(kept, experiment)
    if found and _has_trials(experiment):
        raise SpecError(
            f"{folder} holds trials of other settings, as {folder / KEPT} says: {'; '.join(found)}. Take these settings back "
            "to go on with that study, or give the experiment another name to begin a new one"
        )


def check_shown(experiment: Experiment) -> None:
    """Raise SpecError if the results that are there are of other settings than the experiment's; the message says which."""
    folder, kept = experiment.folder, read_kept(experiment.folder)
    if kept is None:
        return
    found = _differences(_told(kept), _told(experiment))
    if kept.searches and experiment.searches:
        found = list(dict.fromkeys([*differences_of_searches(kept, experiment), *found]))  # both have the workload
    if found:
        raise SpecError(
            f"the results in {folder} are of other settings, as {folder / KEPT} says: {'; '.join(found)}. Give {folder} in "
            "place of the config to see them, or give another name to begin an experiment of these settings"
        )


def differences_of_searches(kept: Experiment, given: Experiment) -> list[str]:
    """Return where settings differ on which all trials of a study depend, in words; empty if the study can go on."""
    if _of_the_search(kept) == _of_the_search(given):
        return []
    try:  # texts differ; what they mean may be the same
        return _differences({**_of_the_search(kept), **_meant(kept)}, {**_of_the_search(given), **_meant(given)})
    except SynoError:  # such as data that is not on this machine
        return _differences(_of_the_search(kept), _of_the_search(given))


def _of_the_search(experiment: Experiment) -> dict[str, Any]:
    """Return the settings on which all trials of a study depend, as they were written."""
    whole: dict[str, Any] = json.loads(experiment.part("search"))
    study = {name: value for name, value in whole["study"].items() if name not in MAY_CHANGE}
    return {**whole, "study": study}


def _meant(experiment: Experiment) -> dict[str, Any]:
    """Return what those of them mean that can be written in several ways."""
    return {
        "spec": experiment.operator_spec.model_dump(mode="json"),
        "relative_budget": None,  # it is in the spec
        "evaluate": experiment.evaluation,
        "reward": experiment.make_reward().settings(),
        "policy": {"name": experiment.policy.get("name", "mcts"), **experiment.policy_settings.model_dump(mode="json")},
    }


def _told(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that tables, figures and the page tell of, beside those of the search."""
    whole = experiment.model_dump(mode="json")
    if experiment.workload is None:
        return {}
    told = {"workload": whole["workload"], "train": whole["train"], "tune": {"latency": whole["tune"]["latency"]}}
    return {**told, "select": {"source": whole["select"]["source"]}}


def _differences(kept: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Return where settings differ, in words; empty if they are the same."""
    if kept == given:
        return []
    from syno.search.settings import named_differences  # with it comes optuna

    return named_differences(kept, given)


def _has_trials(experiment: Experiment) -> bool:
    """Return whether the study has a trial that was evaluated."""
    from syno.search.storage.storage import read_trials

    try:
        trials = read_trials(experiment.storage, experiment.name)
    except SpecError:  # there is no study, or who opens it says what is wrong with it
        return False
    return any(trial.state.name in ("COMPLETE", "PRUNED") for trial in trials)


def _open_study(experiment: Experiment) -> None:
    """Raise SpecError if the study has other settings."""
    from syno.space.space import Space
    from syno.stages.search import open_study

    open_study(experiment, Space(experiment.operator_spec))

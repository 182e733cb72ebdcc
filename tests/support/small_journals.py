"""Studies in journal files, and how Optuna itself reads them."""

from __future__ import annotations

from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from syno.search.storage.opening import open_storage
from syno.search.storage.store import TrialStore


def store_at(path: Path) -> TrialStore:
    return TrialStore(*open_storage(f"journal:{path}"), "study")


def finished_study(path: Path, trials: int = 6) -> dict[str, float]:
    """Rewards by fingerprint, of a study with one trial more that runs."""
    store, rewards = store_at(path), {}
    for index in range(trials):
        trial_id = store.create({"fingerprint": f"f{index}", "padding": "x" * 40})
        store.annotate(trial_id, "result", {"kind": "complete", "reward": index / 8})
        store.end(trial_id, TrialState.COMPLETE, index / 8)
        rewards[f"f{index}"] = index / 8
    store.create({"fingerprint": "running"})
    return rewards


def rewards_of(trials: list[optuna.trial.FrozenTrial]) -> dict[str, float | None]:
    return {trial.user_attrs["fingerprint"]: trial.value for trial in trials if trial.state == TrialState.COMPLETE}


def by_optuna(path: Path) -> list[optuna.trial.FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(path)))
    return storage.get_all_trials(storage.get_study_id_from_name("study"))


def line_with(lines: list[bytes], part: str) -> int:
    (found,) = (index for index, line in enumerate(lines) if part.encode() in line)
    return found

"""The trials of one study in a storage: the operations that a study needs, with verification of checksums.

Workers that share a study rely on two guarantees, which every Optuna storage gives: trials are created atomically and numbered
in the order of their creation (`TrialStore.create`), and the first to end a trial wins (`TrialStore.end`).
"""

from __future__ import annotations

import copy
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from syno.base.addresses import cleaned
from syno.base.errors import SpecError, StorageError
from syno.search.halving import Step, as_step
from syno.search.storage.errors import reconnecting, repeated, storage_errors
from syno.search.storage.journal import Journal
from syno.search.storage.leases import Leases, end_trial
from syno.search.storage.opening import journal_file, open_storage, sqlite_file
from syno.search.storage.records import CHECKSUM, FINGERPRINT, RESULT, Result, deaths_in_words, is_intact, with_checksum

SCREENING = "screening"  # the attribute


def screening_attribute(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return metrics that are known before the training, as an attribute of a trial."""
    return with_checksum({"metrics": dict(metrics)})


def screening_metrics(trials: Iterable[FrozenTrial]) -> dict[str, float] | None:
    """Return the metrics of an operator's trials that were known before the training; None if no trial got so far."""
    metrics: dict[str, float] | None = None
    for trial in trials:
        stored = trial.user_attrs.get(SCREENING)
        if isinstance(stored, dict) and is_intact(stored):
            metrics = (metrics or {}) | {str(name): float(value) for name, value in stored["metrics"].items()}
    return metrics


PREFIX = "rung "  # of attributes with values at rungs, followed by the step


def rung_key(step: Step) -> str:
    """Return the name of the trial attribute that stores the value at a step."""
    return f"{PREFIX}{step}"


def rung_attribute(value: float) -> dict[str, Any]:
    """Return a trial's value at a rung as an attribute, with a checksum."""
    return with_checksum({"value": value if isfinite(value) else None})


def values_at_rungs(trial: FrozenTrial) -> dict[Step, float]:
    """Return a trial's values at the rungs, by step; NaN for a stored value that is no number. Damaged values are skipped."""
    by_step = {key.removeprefix(PREFIX): value for key, value in trial.user_attrs.items() if key.startswith(PREFIX)}
    return {
        as_step(step): nan if stored["value"] is None else float(stored["value"])
        for step, stored in by_step.items()
        if isinstance(stored, dict) and is_intact(stored)
    }


T = TypeVar("T")

WITHDRAWN = "withdrawn "  # prefix of study attributes, one for each decision: several workers may decide at the same moment
SETTINGS = "syno"  # study attribute: its settings
EXHAUSTED = "exhausted"  # study attribute: the number of withdrawn trials when a worker found no operator left to propose


class TrialStore:
    """The trials of one study in a storage.

    Errors of the storage are raised as StorageError. While a database server is unreachable, each operation waits for up to a
    minute.
    """

    def __init__(self, storage: BaseStorage, leases: Leases, name: str, place: str = "of this study") -> None:
        """Open the study of this name in the storage, or create it. `place` is the storage's URL, for messages."""
        self.storage = storage
        self.leases = leases
        self.place = place
        with storage_errors(place):
            self.study = repeated(lambda: _open_study(storage, name))
            self._study_id = storage.get_study_id_from_name(name)
        self._verification = Verification(place)
        self._ids: dict[int, int] = {}  # ids of trials by number

    def _do(self, action: Callable[[], T]) -> T:
        with storage_errors(self.place):
            return reconnecting(self.storage, action)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the study."""
        return self._do(lambda: self.storage.get_study_user_attrs(self._study_id))

    def describe(self, key: str, value: object) -> None:
        """Store an attribute of the study."""
        self._do(lambda: self.storage.set_study_user_attr(self._study_id, key, value))

    def withdraw(self, numbers: Iterable[int], reason: str) -> None:
        """Store the numbers of trials that do not count, and the reason."""
        self.describe(f"{WITHDRAWN}{uuid.uuid4().hex}", {"trials": sorted(numbers), "reason": reason})

    def exhaust(self, withdrawn: int) -> None:
        """Store that the space has no operator left to propose; `withdrawn` is the number of withdrawn trials at this time."""
        if self.attributes.get(EXHAUSTED) != withdrawn:
            self.describe(EXHAUSTED, withdrawn)

    def trials(self) -> list[FrozenTrial]:
        """Return all stored trials, in the order of their numbers. The caller must not change them.

        Raises StorageError if a trial was changed since it was stored.
        """
        return self._verification.verified(self._do(lambda: self.storage.get_all_trials(self._study_id, deepcopy=False)))

    def create(self, attributes: Mapping[str, object]) -> int:
        """Create a running trial with these attributes atomically. Return its id.

        Trials are numbered in the order of creation, and a worker that has created a trial sees all trials of lower numbers.
        (SQLite has one writer at a time; on other databases Optuna locks the study's row; a journal is a sequence.) If the
        connection to a server breaks meanwhile, the trial may be created twice; the second is a duplicate
        (`syno.search.trials`).
        """
        template = create_trial(state=TrialState.RUNNING, user_attrs=dict(attributes))
        return self._do(lambda: self.storage.create_new_trial(self._study_id, template))

    def id_of(self, trial: FrozenTrial) -> int:
        """Return the storage's id of a trial, which may differ from its number."""
        if trial.number not in self._ids:
            find = self.storage.get_trial_id_from_study_id_trial_number  # the trial's own id attribute is private
            self._ids[trial.number] = self._do(lambda: find(self._study_id, trial.number))
        return self._ids[trial.number]

    def stored(self, trial_id: int) -> FrozenTrial:
        """Return the stored trial with this id. The caller must not change it."""
        return self._do(lambda: self.storage.get_trial(trial_id))

    def annotate(self, trial_id: int, key: str, value: object) -> bool:
        """Store an attribute of a running trial. Return False if the trial has ended."""
        try:
            self._do(lambda: self.storage.set_trial_user_attr(trial_id, key, value))
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def end(self, trial_id: int, state: TrialState, reward: float | None = None) -> bool:
        """Set the final state of a trial.

        Return False if it has a final state already: the first worker to end a trial wins.
        """
        return self._do(lambda: end_trial(self.storage, trial_id, state, reward))

    def end_stale(self, running: Sequence[FrozenTrial]) -> bool:
        """End the running trials whose lease has expired. Return whether there were any such trials."""
        by_id = {self.id_of(trial): trial for trial in running}
        return self._do(lambda: self.leases.end_stale(self.study, by_id))

    def report(self, trial_id: int, step: int, value: float) -> None:
        """Store an intermediate value of a running trial."""
        trial = optuna.Trial(self.study, trial_id)
        self._do(lambda: trial.report(value, step))


def _open_study(storage: BaseStorage, name: str) -> optuna.Study:
    # Never used: trials have no parameters, and are never pruned by what they report.
    unused: dict[str, Any] = {"sampler": optuna.samplers.RandomSampler(seed=0), "pruner": optuna.pruners.NopPruner()}
    try:
        return optuna.load_study(study_name=name, storage=storage, **unused)
    except KeyError:
        return optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True, **unused)


def read_trials(url: str, name: str) -> list[FrozenTrial]:
    """Return the trials of a study in the order of their numbers, for a table. The storage is neither created nor changed.

    Raises SpecError if there is no such study, or the storage cannot be read.
    """
    return read_study(url, name)[0]


def read_study(url: str, name: str) -> tuple[list[FrozenTrial], bool]:
    """Return the trials of a study as `read_trials` does, and whether the space is exhausted."""
    file = _file_of(url)
    if file is not None and not file.is_file():
        raise SpecError(f'there is no study "{name}": {file} is not there; `syno search` makes it')
    with storage_errors(url):
        storage = _storage_to_read(url)
        try:
            study = storage.get_study_id_from_name(name)
        except KeyError:
            names = ", ".join(study.study_name for study in storage.get_all_studies()) or "none"
            raise SpecError(f'{url} holds no study "{name}"; it has: {names}') from None
        trials = Verification(url).verified(storage.get_all_trials(study, deepcopy=False))
        attributes = storage.get_study_user_attrs(study)
        return with_withdrawn(trials, attributes), is_exhausted(attributes)


def read_settings(url: str, name: str) -> dict[str, Any]:
    """Return the settings of a study; {} if it does not exist yet. The storage is neither created nor changed."""
    file = _file_of(url)
    if file is not None and not file.is_file():
        return {}
    with storage_errors(url):
        storage = _storage_to_read(url)
        try:
            attributes = storage.get_study_user_attrs(storage.get_study_id_from_name(name))
        except KeyError:
            return {}
        return dict(attributes.get(SETTINGS) or {})


def _file_of(url: str) -> Path | None:
    return journal_file(url) or sqlite_file(url)


def _storage_to_read(url: str) -> BaseStorage:
    """Return a storage for reading. A journal file is read directly, since its folder may be read-only."""
    journal = journal_file(url)
    return JournalStorage(Journal(journal)) if journal is not None else open_storage(url)[0]


def withdrawn(attributes: Mapping[str, Any]) -> dict[int, str]:
    """Return the numbers of the trials that do not count, each with the reason, from the attributes of a study.

    The set-up was broken when they ran, not their operators. A worker that opens the study afterwards ignores these trials:
    their operators are proposed and evaluated again, in the same order, and do not use up `n_trials`.
    """
    decisions = [value for key, value in attributes.items() if key.startswith(WITHDRAWN)]
    return {int(number): cleaned(str(decision["reason"])) for decision in decisions for number in decision["trials"]}


def is_exhausted(attributes: Mapping[str, Any]) -> bool:
    """Return whether a worker found no operator left to propose, and no trial was withdrawn since."""
    return attributes.get(EXHAUSTED) == len(withdrawn(attributes))


def with_withdrawn(trials: Sequence[FrozenTrial], attributes: Mapping[str, Any]) -> list[FrozenTrial]:
    """Return the trials of a study for a table, with derived outcomes: "withdrawn" trials, and trials of dead workers.

    A trial whose worker died is "interrupted"; with the last permitted attempt, it is "failed".
    """
    numbers, marked = withdrawn(attributes), list(trials)
    most, deaths = (attributes.get(SETTINGS) or {}).get("most_attempts"), Counter[str]()
    for index, trial in enumerate(marked):
        fingerprint = trial.user_attrs.get(FINGERPRINT)
        if fingerprint is None or not trial.state.is_finished() or Result.of(trial) is not None:
            continue
        deaths[fingerprint] += 1
        count = deaths[fingerprint]
        ended = Result("failed", message=deaths_in_words(count)) if most is not None and count >= most else Result(
            "interrupted", message="its worker died"
        )  # fmt: skip
        marked[index] = copy.copy(trial)
        marked[index].user_attrs = {**trial.user_attrs, RESULT: ended.stored()}
    for index, trial in enumerate(marked):
        result = trial.user_attrs.get(RESULT)
        if trial.number in numbers and isinstance(result, dict) and result.get("kind") in ("failed", "screened"):
            marked[index] = copy.copy(trial)
            marked[index].user_attrs = {**trial.user_attrs, RESULT: {**result, "kind": "withdrawn"}}
    return marked


class Verification:
    """Verifies the trials of one study against their checksums, each ended trial once."""

    def __init__(self, place: str) -> None:
        """Create the verification. `place` is the study's storage, for messages."""
        self._place = place
        self._seen = 0
        self._open: set[int] = set()  # numbers of trials without a result

    def verified(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials unchanged. Raises StorageError if a trial was changed since it was stored."""
        for number in range(self._seen, len(trials)):
            if trials[number].number != number:
                raise self._damaged(number, f"there is trial {trials[number].number} in its place")
            if not is_intact(trials[number].user_attrs):
                raise self._damaged(number, "its operator, or what belongs to it, does not match its checksum")
            self._open.add(number)
        self._seen = len(trials)
        for number in sorted(self._open):
            self._verify_result(trials[number])
            if trials[number].state.is_finished():
                self._open.discard(number)
        return trials

    def _verify_result(self, trial: FrozenTrial) -> None:
        stored = trial.user_attrs.get(RESULT)
        if stored is None:
            return
        if not isinstance(stored, dict) or not is_intact(stored):
            raise self._damaged(trial.number, "its result does not match its checksum")
        result = Result.of(trial) if CHECKSUM in stored else None
        if result is not None and trial.state == TrialState.COMPLETE and trial.value != result.reward:
            raise self._damaged(trial.number, "its value is not the reward of its result")

    def _damaged(self, number: int, reason: str) -> StorageError:
        return StorageError(
            f"the storage {self._place} is damaged at trial {number}: {reason}. Take a copy from before, or begin a study of "
            "another name"
        )

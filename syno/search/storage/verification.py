"""Verification of trials: each is compared with the checksum that was stored with it."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from syno.base.errors import StorageError
from syno.search.storage.records import RESULT, Result
from syno.search.storage.seals import CHECKSUM, is_intact


class Verification:
    """Verifies the trials of one study, each of them once: trials that have ended don't change."""

    def __init__(self, place: str) -> None:
        """`place` is where the study is stored, for messages."""
        self._place = place
        self._seen = 0
        self._open: set[int] = set()  # numbers of trials without a result

    def verified(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """Return all trials of the study as given. Raises StorageError if one was changed since it was stored."""
        for number in range(self._seen, len(trials)):
            if trials[number].number != number:
                raise self._damaged(number, f"there is trial {trials[number].number} in its place")
            if not is_intact(trials[number].user_attrs):
                raise self._damaged(number, "its operator, or what belongs to it, does not match its checksum")
            self._open.add(number)
        self._seen = len(trials)
        self._verify_results(trials)
        return trials

    def _verify_results(self, trials: Sequence[FrozenTrial]) -> None:
        for number in sorted(self._open):
            trial = trials[number]
            stored = trial.user_attrs.get(RESULT)
            if stored is not None:
                if not isinstance(stored, dict) or not is_intact(stored):
                    raise self._damaged(number, "its result does not match its checksum")
                result = Result.of(trial) if CHECKSUM in stored else None
                if result is not None and trial.state == TrialState.COMPLETE and trial.value != result.reward:
                    raise self._damaged(number, "its value is not the reward of its result")
            if trial.state.is_finished():
                self._open.discard(number)

    def _damaged(self, number: int, reason: str) -> StorageError:
        return StorageError(
            f"the storage {self._place} is damaged at trial {number}: {reason}. Take a copy from before, or begin a study of "
            "another name"
        )

"""Stopping a search before its end when the set-up is broken, not the operators.

All workers of a study decide from what is stored, so that each of them stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial

from syno.base.errors import SearchStoppedError
from syno.search.faults import Fault, alike
from syno.search.ledger import Claim, Ledger
from syno.search.reward import Failure
from syno.search.settings import differences
from syno.search.storage.store import SETTINGS, TrialStore, withdrawn

EQUAL_AT_START = 2  # equal failures in a row that stop a study in which nothing has succeeded
EQUAL_LATER = 10  # after a success: operators that fail alike may come one after another by chance
MACHINE_ATTEMPTS = 2  # failures of the machine in a row that stop a worker
AGAIN = "Mend it and run the same command again: these trials are evaluated again, and n_trials is not spent on them"


class Stopping:
    """Decides for one worker whether its study goes on.

    Attributes:
        withdrawn: numbers of trials that did not count when the worker began; see `syno.search.storage.store.withdrawn`.
    """

    def __init__(self, store: TrialStore, settings: Mapping[str, Any]) -> None:
        self._store = store
        self._settings = settings
        self.withdrawn: frozenset[int] = frozenset()

    @property
    def is_outdated(self) -> bool:
        """Whether some worker has withdrawn trials since this one began."""
        return withdrawn(self._store.attributes).keys() != self.withdrawn

    def begin(self, trials: Sequence[FrozenTrial], empty: Ledger) -> Ledger:
        """Return an empty ledger like `empty` for a worker that begins, which leaves out the trials that do not count.

        If an earlier worker was killed just before it withdrew the last failures, they are withdrawn now.
        """
        while True:
            self.withdrawn = frozenset(withdrawn(self._store.attributes))
            ledger = empty.without(self.withdrawn)
            ledger.update(trials)
            equal = equal_failures(ledger)
            if not self._are_enough(equal, ledger):
                return empty.without(self.withdrawn)
            self._withdraw(equal, _cause(equal[-1]))

    def check(self, ledger: Ledger) -> None:
        """Raise SearchStoppedError if evaluations fail alike, here or at other workers, or the study has other settings now."""
        if ledger.last_success < 0 or ledger.has_blamed_function:  # else nothing can have been decided, and a query is saved
            self._check_others()
        equal = equal_failures(ledger)
        if self._are_enough(equal, ledger):
            count, place = len(equal), "" if ledger.last_success >= 0 else ", and none has succeeded"
            reason = f"{count} trials in a row failed alike{place}; the last: {_cause(equal[-1])}"
            self._withdraw(equal, reason)
            raise self._stopped(reason)

    def check_end(self, ledger: Ledger, n_trials: int) -> None:
        """Raise SearchStoppedError if all trials of a study that has ended failed.

        Not where others were screened out, and no function is to blame: that nothing meets the goal is a result.
        """
        if not n_trials or not ledger.finished or ledger.last_success >= 0 or ledger.is_open(n_trials):
            return
        blamed = [claim for claim in ledger.claims if _blames_function(claim)]
        count, last = ledger.finished, next(filter(None, map(_cause, reversed(ledger.claims))), "no reason was stored")
        reason = f"all {count} trials failed; the last: {last}" if count > 1 else f"its only trial failed: {last}"
        if blamed:
            self._withdraw(blamed, reason)
            raise self._stopped(reason)
        if ledger.screened:
            return
        raise SearchStoppedError(
            f'study "{self._name}": {reason}. Change the settings and run the same command again: as no trial has succeeded, '
            "the study begins anew with them"
        )

    @property
    def _name(self) -> str:
        return self._store.study.study_name

    def _check_others(self) -> None:
        attributes = self._store.attributes
        found = differences(attributes.get(SETTINGS), self._settings)
        if found:
            raise SearchStoppedError(
                f'study "{self._name}" was given other settings by another worker: {"; ".join(found)} ("there" is the study)'
            )
        known = withdrawn(attributes)
        new = known.keys() - self.withdrawn
        if new:
            raise self._stopped(known[max(new)])

    def _are_enough(self, equal: Sequence[Claim], ledger: Ledger) -> bool:
        is_start = ledger.last_success <= max(self.withdrawn, default=-1)  # of the study, or since its set-up was repaired
        return len(equal) >= (EQUAL_AT_START if is_start else EQUAL_LATER)

    def _withdraw(self, claims: Iterable[Claim], reason: str) -> None:
        self._store.withdraw([claim.numbers[-1] for claim in claims], reason)

    def _stopped(self, reason: str) -> SearchStoppedError:
        return SearchStoppedError(
            f'study "{self._name}" stopped: {reason}. {AGAIN}. Where operators are to blame, let the function raise '
            "syno.base.errors.TrainingError"
        )


def stopped_by_machine(name: str, fault: Fault) -> SearchStoppedError:
    """Return the error of a worker whose machine cannot evaluate."""
    error = SearchStoppedError(
        f'a worker of study "{name}" stopped, because its machine failed: {fault.cause}. Its trial was given back: other '
        "workers go on with it, as the same command does when the machine is mended"
    )
    error.may_pass = fault.may_pass
    return error


def equal_failures(ledger: Ledger) -> list[Claim]:
    """Return the claims that ended last, as long as the user's function failed alike in them, in their order."""
    equal: list[Claim] = []
    for claim in reversed(ledger.claims):
        if claim.outcome is None or claim.screened:
            continue
        if not _blames_function(claim) or (equal and alike(_cause(claim)) != alike(_cause(equal[0]))):
            break
        equal.append(claim)
    return equal[::-1]


def _blames_function(claim: Claim) -> bool:
    return claim.failure is not None and claim.failure.fault == "function"


def _cause(claim: Claim) -> str:
    """Return why the evaluation of a claim failed, in one line; "" if it did not."""
    if claim.failure is not None and claim.failure.cause:
        return claim.failure.cause
    return claim.outcome.reason.splitlines()[-1] if isinstance(claim.outcome, Failure) else ""  # of a traceback

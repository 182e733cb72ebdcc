"""Which trial evaluates an operator, whatever the order in which workers create trials, look, and die."""

from __future__ import annotations

import itertools
import random
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from quick_cases import quick_cases

from syno.search.reward import Failure
from syno.search.storage.leases import NoLeases
from syno.search.storage.records import Kind, Result
from syno.search.storage.store import SETTINGS, TrialStore, with_withdrawn
from syno.search.trials import Assignment, StudyState

WORKER = {"host": "here", "pid": 1, "started": 0, "system": ""}


@pytest.fixture
def store() -> TrialStore:
    return TrialStore(optuna.storages.InMemoryStorage(), NoLeases(), "study")


def create(store: TrialStore, fingerprint: str, attempt: int = 0) -> int:
    stored: dict[str, Any] = {"fingerprint": fingerprint, "attempt": attempt, "path": [["Finalize", fingerprint]], "told": []}
    return store.create({**stored, "worker": WORKER})


def end(store: TrialStore, number: int, kind: Kind = "complete", reward: float | None = 0.5) -> None:
    result = Result(kind, reward if kind == "complete" else None, message=kind)
    assert store.annotate(number, "result", result.stored())
    assert store.end(number, result.state, result.reward)


def die(store: TrialStore, number: int) -> None:
    assert store.end(number, TrialState.FAIL)


def state_of(store: TrialStore, most_attempts: int = 3) -> StudyState:
    found = StudyState(most_attempts)
    found.update(store.trials())
    return found


class TestOperators:
    def test_the_lowest_number_evaluates_the_operator(self, store: TrialStore) -> None:
        for fingerprint in "abaacb":
            create(store, fingerprint)
        found = state_of(store)
        assert [(entry.rank, entry.number, entry.candidate.fingerprint) for entry in found.entries] == [
            (0, 0, "a"),
            (1, 1, "b"),
            (2, 4, "c"),
        ]
        assert [found.assignment(number) for number in (2, 3, 5)] == [None] * 3
        assert found.assignment(4) == Assignment(found.entries[2], 0)

    def test_who_sees_more_sees_the_same(self, store: TrialStore) -> None:
        """What was read once stays true: the operators that an earlier look found are the first of those a later one finds."""
        growing = StudyState(3)
        seen: list[list[str]] = []
        for fingerprint in "abacbdade":
            create(store, fingerprint)
            growing.update(store.trials())
            seen.append([entry.candidate.fingerprint for entry in growing.entries])
            assert seen[-1] == [entry.candidate.fingerprint for entry in state_of(store).entries]
        assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(seen))

    def test_trials_of_others_are_left_alone(self, store: TrialStore) -> None:
        store.study.ask()
        create(store, "a")
        assert [entry.number for entry in state_of(store).entries] == [1]

    def test_an_interrupted_trial_is_retried_by_one(self, store: TrialStore) -> None:
        die(store, create(store, "a"))
        assert [entry.number for entry in state_of(store).to_retry(5)] == [0]
        assert state_of(store).to_retry(0) == []
        create(store, "a", attempt=1)
        create(store, "a", attempt=1)
        found = state_of(store)
        assert found.assignment(1) == Assignment(found.entries[0], 1) and found.assignment(2) is None
        assert found.to_retry(5) == []
        die(store, 1)
        assert len(state_of(store).to_retry(5)) == 1
        assert len(state_of(store).entries) == 1

    def test_what_became_of_it(self, store: TrialStore) -> None:
        kinds: list[Kind] = ["complete", "pruned", "failed"]
        for kind in kinds:
            end(store, create(store, kind), kind)
        found = state_of(store)
        assert [entry.outcome for entry in found.entries] == [0.5, 0.0, Failure("failed")]
        assert found.ended == {"complete": 1, "pruned": 1, "failed": 1} and found.finished == 3
        assert found.best == (0.5, 0) and not found.unfinished(3)

    def test_a_result_counts_before_the_trial_has_its_last_state(self, store: TrialStore) -> None:
        number = create(store, "a")
        store.annotate(number, "result", Result("complete", 0.7).stored())
        assert state_of(store).entries[0].outcome == 0.7
        die(store, number)
        assert state_of(store).entries[0].outcome == 0.7

    def test_too_many_deaths_are_a_failure(self, store: TrialStore) -> None:
        for attempt in range(3):
            assert len(state_of(store).to_retry(1)) == min(attempt, 1)
            die(store, create(store, "a", attempt))
        found = state_of(store)
        outcome = found.entries[0].outcome
        assert isinstance(outcome, Failure) and outcome.reason.startswith("its worker died during the evaluation, 3 times")
        assert found.to_retry(1) == [] and found.ended["failed"] == 1 and len(found.died) == 1
        ends = [Result.of(trial) for trial in with_withdrawn(store.trials(), {SETTINGS: {"most_attempts": 3}})]
        told = [("interrupted", "its worker died"), ("interrupted", "its worker died"), ("failed", outcome.reason)]
        assert [(one.kind, one.message) for one in ends if one is not None] == told

    def test_being_told_to_stop_is_no_death(self, store: TrialStore) -> None:
        for attempt in range(5):
            end(store, create(store, "a", attempt), "interrupted")
        assert len(state_of(store).to_retry(1)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", quick_cases(range(30), range(5).__contains__))
def test_any_interleaving_of_workers(store: TrialStore, seed: int) -> None:
    """Workers that look, create, look again and evaluate, in any order, dying at times: each operator is evaluated once, and
    never more than the study's total."""
    rng = random.Random(seed)
    total, evaluated = 12, []
    states: list[tuple[str, int]] = [("idle", -1)] * 4
    for _ in range(2000):
        worker = rng.randrange(len(states))
        what, number = states[worker]
        found = state_of(store, most_attempts=10**6)
        if what == "idle":
            states[worker] = ("creating", -1)
        elif what == "creating":  # what it saw when it was idle may be out of date by now
            interrupted = found.to_retry(total)
            if interrupted and rng.random() < 0.7:
                entry = rng.choice(interrupted)
                states[worker] = ("checking", create(store, entry.candidate.fingerprint, len(entry.numbers)))
            elif len(found.entries) < total + rng.randrange(2):
                states[worker] = ("checking", create(store, f"operator {rng.randrange(40)}"))
        elif rng.random() < 0.1:
            die(store, number)
            states[worker] = ("idle", -1)
        elif what == "checking":
            assignment = found.assignment(number)
            if assignment is None:
                end(store, number, "duplicate")
            elif assignment.entry.rank >= total:
                end(store, number, "interrupted")
            states[worker] = (
                ("evaluating", number) if assignment is not None and assignment.entry.rank < total else ("idle", -1)
            )
        else:
            assignment = found.assignment(number)
            assert assignment is not None
            evaluated.append(assignment.entry.candidate.fingerprint)
            end(store, number)
            states[worker] = ("idle", -1)
    assert len(evaluated) == len(set(evaluated)) == total
    assert state_of(store, 10**6).ended["complete"] == total

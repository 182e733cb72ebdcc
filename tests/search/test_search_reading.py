"""How often a worker reads the study, which on a database is most of what an ask takes, and that it misses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_studies import evaluate, proposed, study

from syno.search.policies import Exhausted, Proposal
from syno.search.storage.store import TrialStore
from syno.search.trials import RunningTrial

STORAGES = ["memory:", "sqlite:///{}/trials.db", "journal:{}/trials"]


@pytest.mark.parametrize("storage", STORAGES)
def test_once_for_each_ask_where_nobody_else_is_at_work(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = TrialStore.trials

    def counted(store: TrialStore) -> object:
        found = read(store)
        reads.append(len(found))
        return found

    found = study(storage.format(tmp_path))
    monkeypatch.setattr(TrialStore, "trials", counted)
    found.run(evaluate, 6)
    beginning = reads[: reads.index(1)]
    assert set(beginning) == {0} and len(beginning) <= 2  # whether a worker died, and what to begin with
    assert reads[len(beginning) :] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("storage", STORAGES[1:])
def test_again_where_another_was_faster(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would have proposed the same operator; the slower one takes another."""
    slow, fast = (study(storage.format(tmp_path)) for _ in range(2))
    propose = slow.policy.propose
    others: list[RunningTrial | None] = []

    def late(salt: str = "") -> Proposal | Exhausted:
        proposal = propose(salt)
        if not others:
            others.append(fast._scheduler.next(10))
        return proposal

    monkeypatch.setattr(slow.policy, "propose", late)
    task, (other,) = slow._scheduler.next(10), others
    assert task is not None and other is not None
    assert (other.number, task.number) == (0, 2) and task.operator.id != other.operator.id
    assert list(slow.trials.outcome) == ["running", "duplicate", "running"]


def test_a_last_trial_that_others_took_in_between_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = (study(f"sqlite:///{tmp_path}/trials.db") for _ in range(2))
    propose = slow.policy.propose
    taken: list[RunningTrial | None] = []

    def late(salt: str = "") -> Proposal | Exhausted:
        proposal = propose("another way")
        if not taken:
            taken.extend(fast._scheduler.next(2) for _ in range(2))
        return proposal

    monkeypatch.setattr(slow.policy, "propose", late)
    fast._scheduler._own = Kept()  # its first trial is still running when it asks again
    assert slow._scheduler.next(2) is None
    assert [task.number for task in taken if task is not None] == [0, 1]
    assert list(slow.trials.outcome) == ["running", "running", "interrupted"]


class Kept(set[int]):
    """Nothing is put in."""

    def add(self, _: int) -> None:
        pass


def test_what_a_worker_proposed_is_the_same_as_after_reading_all_of_it(tmp_path: Path) -> None:
    """A study that is opened anew for each trial reads everything, one that goes on does not."""
    storage = f"journal:{tmp_path}/trials"
    for trials in range(1, 9):
        study(storage).run(evaluate, trials)
    whole = study()
    whole.run(evaluate, 8)
    assert proposed(study(storage)) == proposed(whole)

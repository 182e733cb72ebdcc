"""Several worker processes on one study, some of them killed."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pandas
import pytest
import search_worker
from command_lines import HANGS_AFTER
from forked_processes import Forked

from syno.base.errors import StorageError
from syno.search.study import Study
from syno.search.workers import _run

KINDS = (pytest.param("sqlite", marks=pytest.mark.slow), "journal")


def place(kind: str, folder: Path) -> str:
    return f"sqlite:///{folder}/trials.db" if kind == "sqlite" else f"journal:{folder}/trials"


def start(storage: str, policy: str, trials: int, notes: Path, seconds: float) -> Forked:
    return Forked(search_worker.work, storage, policy, trials, notes, seconds)


def finish(*workers: Forked) -> None:
    for worker in workers:
        _, errors = worker.communicate(timeout=HANGS_AFTER)
        assert worker.returncode == 0, errors


def kill(worker: Forked) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.communicate()


def begun(notes: Path) -> Counter[str]:
    """How often the evaluation of each operator was begun."""
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    return Counter(line.split()[1] for line in lines if line.startswith("begin"))


def wait_for(notes: Path, evaluations: int) -> None:
    while sum(begun(notes).values()) < evaluations:
        time.sleep(0.01)


def finished(study: Study) -> pandas.DataFrame:
    trials = study.trials
    return trials[trials.outcome.isin(["complete", "failed", "pruned"])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_workers_share_the_trials(tmp_path: Path, kind: str) -> None:
    storage, notes, count = place(kind, tmp_path), tmp_path / "notes", 60
    finish(*[start(storage, "mcts", count, notes, 0.02) for _ in range(2)])
    study = search_worker.open_study(storage, "mcts")
    trials = finished(study)
    assert len(trials) == trials.fingerprint.nunique() == count
    assert begun(notes).total() == len(begun(notes)) == count
    assert trials.worker.nunique() == 2 and trials.worker.value_counts().min() >= count / 10
    assert (study.trials.outcome != "running").all()


@pytest.mark.parametrize("kind", KINDS)
def test_killing_one_of_two_workers_loses_nothing(tmp_path: Path, kind: str) -> None:
    storage, notes = place(kind, tmp_path), tmp_path / "notes"
    workers = [start(storage, "evolution", 24, notes, 0.05) for _ in range(2)]
    wait_for(notes, 8)
    kill(workers[0])
    finish(workers[1])
    study = search_worker.open_study(storage, "evolution")
    trials = finished(study)
    assert len(trials) == trials.fingerprint.nunique() == 24
    assert set(begun(notes).values()) <= {1, 2} and begun(notes).total() <= 25  # only what was cut off is begun again
    assert (study.trials.outcome != "running").all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_trial_of_a_worker_elsewhere_is_retried_when_its_lease_is_over(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can see from here whether its process is alive."""
    storage, notes = place(kind, tmp_path), tmp_path / "notes"
    worker = start(storage, "random", 5, notes, 60)
    wait_for(notes, 1)
    monkeypatch.setattr("syno.search.workers._system", lambda: "another machine")
    study = search_worker.open_study(storage, "random")
    study._scheduler.end_dead()
    assert study.trials.outcome[0] == "running"
    kill(worker)
    began = time.monotonic()
    study.run(lambda operator, report: {"accuracy": 0.5}, 5, poll_seconds=0.1)
    assert 1 < time.monotonic() - began < 150  # the grace is 3 seconds, and 180 where none is given
    trials = study.trials
    assert list(trials[trials.outcome == "interrupted"].number) == [0]
    assert len(trials) == 6 and trials[trials.attempt == 1].fingerprint.item() == trials.fingerprint[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_a_living_worker_keeps_its_trial(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the grace, and with others looking on from elsewhere."""
    storage, notes = place(kind, tmp_path), tmp_path / "notes"
    worker = start(storage, "random", 1, notes, 6)
    wait_for(notes, 1)
    monkeypatch.setattr("syno.search.workers._system", lambda: "another machine")
    search_worker.open_study(storage, "random").run(lambda operator, report: {"accuracy": 0.5}, 1, poll_seconds=0.2)
    finish(worker)
    assert list(begun(notes).values()) == [1]
    assert len(search_worker.open_study(storage, "random").trials) == 1


@pytest.mark.parametrize("kind", ["journal", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_a_late_result_is_refused_and_its_trial_counts_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, notes = place(kind, tmp_path), tmp_path / "notes"
    worker = start(storage, "random", 4, notes, 0.5)
    wait_for(notes, 1)
    worker.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("syno.search.workers._system", lambda: "another machine")  # nobody sees that its process is there
    study = search_worker.open_study(storage, "random")
    study.run(lambda operator, report: {"accuracy": 0.25}, 2, poll_seconds=0.1)
    assert list(study.trials.outcome) == ["interrupted", "complete", "complete"]
    worker.send_signal(signal.SIGCONT)
    _, errors = worker.communicate(timeout=HANGS_AFTER)
    assert worker.returncode == 0, errors
    assert "the result of trial 0 came too late" in errors
    trials = finished(search_worker.open_study(storage, "random"))
    assert len(trials) == trials.fingerprint.nunique() == 4
    retried = trials[trials.attempt == 1]
    assert retried.metric_accuracy.item() == 0.25  # not what the stopped worker measured
    assert begun(notes).total() == 3


def test_a_worker_beside_this_process_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise StorageError("the disk\nis full")

    with pytest.raises(SystemExit) as ended:
        _run(work, ())
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: MainProcess: the disk is full\n"


def first_trials(study: Study) -> list[tuple[str, str]]:
    trials = study.trials
    first = trials[(trials.attempt == 0) & (trials.outcome != "duplicate")]
    return list(zip(first.operator, first.steps, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "policy"), [("journal", "mcts"), ("sqlite", "evolution")])
def test_a_worker_killed_at_random_moments_goes_on_exactly(tmp_path: Path, kind: str, policy: str) -> None:
    rng = random.Random(f"{kind} {policy}")
    whole = search_worker.open_study("memory:", policy)
    reward = search_worker.hidden_family_reward(search_worker.FAMILY)

    def evaluate(operator: search_worker.PGraph, report: object) -> dict[str, float]:
        if operator.id.startswith("0"):
            raise RuntimeError
        return {"accuracy": 0.1 + 0.9 * reward(operator)}

    whole.run(evaluate, 50)
    storage, notes, kills = place(kind, tmp_path), tmp_path / "notes", 0
    while True:
        worker = start(storage, policy, 50, notes, 0.01)
        target = begun(notes).total() + rng.randrange(1, 20)
        while worker.poll() is None and begun(notes).total() < target:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        if worker.poll() is not None:
            finish(worker)
            break
        kill(worker)
        kills += 1
    study = search_worker.open_study(storage, policy)
    assert kills >= 2
    assert first_trials(study) == first_trials(whole)
    assert begun(notes).total() <= 50 + kills
    assert len(finished(study)) == 50

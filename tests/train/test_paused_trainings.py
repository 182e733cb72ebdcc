"""A training that paused ends as one that ran through, bit for bit; what becomes of it without its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.ir.rewriting import with_variables
from syno.stages.search import search
from syno.train.progress import Paused, TrainingProgress
from syno.train.proxy_training import ProxyTraining
from syno.train.settings import WorkloadSettings
from syno.train.workload import Workload

SMALL: dict[str, Any] = {
    "width": 0.25,
    "data_settings": {"preset": "micro", "train": 128, "test": 64},
    "training": {"epochs": 3, "batch": 32},
}
CONV = with_variables(OPERATORS["conv2d"](), {"k": "k_1"})


class Pauses:
    """A report that pauses the training after a step that it did not pass before, and notes what it sees."""

    looks = (0.5, 1.25)

    def __init__(self, after: float | None = None, passed: float = 0) -> None:
        self.after, self.passed = after, passed
        self.seen: list[tuple[int, float]] = []
        self.losses: list[tuple[float, float]] = []

    def recent_loss(self, step: float, loss: float) -> None:
        self.losses.append((step, loss))
        if step == self.after and step in self.looks:
            raise Paused("paused", step)

    def __call__(self, step: int, value: float) -> None:
        self.seen.append((step, value))
        if step == self.after:
            raise Paused("paused", step)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.of(WorkloadSettings(**SMALL))


@pytest.fixture(scope="module")
def through(workload: Workload) -> tuple[Pauses, Any]:
    """A report and the metrics of a training that ran through."""
    report = Pauses()
    return report, ProxyTraining(workload, workload.spec())(CONV, report)


def paused(workload: Workload, folder: Path, after: float = 1) -> ProxyTraining:
    evaluate = ProxyTraining(workload, workload.spec(), folder)
    with pytest.raises(Paused):
        evaluate(CONV, Pauses(after))
    return evaluate


@pytest.mark.slow
def test_a_paused_training_ends_as_one_that_ran_through(
    workload: Workload, through: tuple[Pauses, Any], tmp_path: Path
) -> None:
    evaluate = paused(workload, tmp_path, after=0.5)
    for after, passed in ((1, 0.5), (1.25, 1)):
        with pytest.raises(Paused):
            evaluate(CONV, Pauses(after, passed))
    report = Pauses(passed=1.25)
    assert evaluate(CONV, report) == through[1]
    assert (report.seen, report.losses) == (through[0].seen, through[0].losses)
    assert [step for step, _ in report.losses] == [0.5, 1, 1.25, 2, 3]
    assert not list(tmp_path.iterdir())


def lose(file: Path) -> None:
    file.unlink()


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("happens", "warning"),
    [(lose, "paused after round 1 begins anew.*is not there"), (damage, "begins anew.*its end is missing")],
)
def test_without_its_checkpoint_it_begins_anew(
    workload: Workload, through: tuple[Pauses, Any], tmp_path: Path, happens: Callable[[Path], None], warning: str
) -> None:
    evaluate = paused(workload, tmp_path)
    happens(tmp_path / f"{CONV.id}.pt")
    with pytest.warns(UserWarning, match=warning):
        assert evaluate(CONV, Pauses(passed=1)) == through[1]


def test_a_checkpoint_is_forgotten(workload: Workload, tmp_path: Path) -> None:
    paused(workload, tmp_path).forget(CONV)
    assert not list(tmp_path.iterdir())


def test_the_recent_loss_is_that_of_the_last_quarter() -> None:
    progress = TrainingProgress(losses=[9.0] * 8 + [1.0, 3.0, *[5.0] * 3], ends=[10, 13])
    assert progress.recent_loss(1) == pytest.approx((1 + 3) / 2) and progress.recent_loss(2) == 5


@pytest.mark.slow
def test_a_search_pauses_and_ends_with_its_best_trained_through(tmp_path: Path) -> None:
    experiment = Experiment(
        name="small",
        workload=SMALL,
        spec={"depth": 4, "reads": "none"},
        reward={"name": "accuracy", "low": 0.0, "power": 1},
        policy={"name": "random"},
        study={"n_trials": 5, "stopping": {"keep": {1: 0.4, 2: 0.2}}},
        output=tmp_path,
    )
    trials = search(experiment).trials
    last = trials.groupby("fingerprint").outcome.last()
    assert len(last) == 5 and 1 <= (last == "complete").sum() <= 2 and (last == "paused").sum() >= 3
    states = {file.stem for file in (tmp_path / "checkpoints").glob("*.pt")}
    assert len(states) <= (last == "paused").sum()


@pytest.mark.parametrize(
    ("study", "why"),
    [
        ({"stopping": {"keep": {1: 0.5, 3: 0.2}}}, "keep has 3, and a training ends after 3"),
        ({"stopping": {"keep": {1: 0.5, 2: 0.6}}}, "cannot grow"),
    ],
)
def test_pausing_with_unfit_settings_is_an_error(study: dict[str, Any], why: str) -> None:
    with pytest.raises(Exception, match=why):
        Experiment(name="small", workload=SMALL, spec={"depth": 4}, study=study)


def test_experiments_kept_when_there_was_a_pruner_are_read() -> None:
    kept = {"n_trials": 7, "pruner": None}
    assert Experiment(name="small", workload=SMALL, spec={"depth": 4}, study=kept).study.n_trials == 7

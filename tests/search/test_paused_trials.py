"""Trials that pause at rungs: who resumes them, what is trained, and what is left after a death at any place."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from typing import Literal

import paused_worker
import pytest
from command_lines import HANGS_AFTER
from forked_processes import Forked
from paused_studies import KEEP, STEPS, WITH_FITS, Killed, Training, deadly, fit_error, journal, open_study, value

from syno.base.errors import SpecError
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.search.halving import HalvingSettings, Rungs
from syno.search.policies import Candidate
from syno.search.reward import Outcome
from syno.search.study import Study
from syno.train.contract import FIT_ERROR

FITTED = HalvingSettings(keep=WITH_FITS)


def rows(study: Study) -> list[tuple[str, str]]:
    """The operators and the outcomes of the trials that were not interrupted, in order."""
    table = study.trials[study.trials.outcome != "interrupted"]
    return list(zip(table.fingerprint, table.outcome, strict=True))


def test_the_best_are_trained_to_the_end_and_no_step_twice() -> None:
    study, training = open_study(), Training()
    study.run(training, 40)
    depths, table = training.depths(), study.trials
    assert max(Counter(training.trained).values()) == 1 and len(depths) == 40
    operators = {operator.id: operator for operator in map(parse, table.operator)}
    by_value = sorted(depths, key=lambda id_: -value(operators[id_], 1))
    assert depths[by_value[0]] == STEPS and depths[by_value[-1]] == min(KEEP)
    assert Counter(depths.values())[STEPS] < 20 and (table.outcome == "resumed").any()
    last = table.groupby("fingerprint").outcome.last()
    assert set(last) == {"complete", "paused"} and (last == "complete").sum() == Counter(depths.values())[STEPS]
    assert study.best()[0].reward == table.reward.max()


def test_decisions_are_those_of_the_rungs() -> None:
    """Trial by trial, as benchmarks/stopping.py replays them."""
    from syno.paper.replay.stopping import halving

    study, training = open_study(policy="random"), Training()
    study.run(training, 40)
    first = study.trials[study.trials.attempt == 0]
    operators = [parse(text) for text in first.operator]
    curves = [[value(operator, half / 2) for half in range(1, 2 * STEPS + 1)] for operator in operators]
    replayed = halving(KEEP, parts=2)(curves)
    assert [2 * training.depths()[operator.id] for operator in operators] == replayed.epochs


@pytest.mark.parametrize("storage", ["journal:{}/trials", pytest.param("sqlite:///{}/trials.db", marks=pytest.mark.slow)])
def test_another_worker_resumes_what_this_one_paused(tmp_path: Path, storage: str) -> None:
    training = Training()
    open_study(storage.format(tmp_path), "random").run(training, 12)
    paused, before = dict(training.states), len(training.trained)
    open_study(storage.format(tmp_path), "random").run(training, 40)
    resumed = [id_ for id_, step in training.trained[before:] if id_ in paused and step == paused[id_] + 1]
    assert resumed and max(Counter(training.trained).values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "every"), [("surrogate", 37), ("mcts", 3)])
def test_a_worker_killed_anywhere_loses_nothing(tmp_path: Path, policy: str, every: int) -> None:
    """Before an access to what is stored, or a step of training, one after another. Operators are fitted first."""
    whole, study = Training(fits=True), open_study(journal(tmp_path / "whole"), policy, stopping=FITTED)
    study.run(whole, 10)
    expected, deaths = rows(study), 0
    while True:
        training, folder = Training(fits=True), tmp_path / str(deaths)
        study = open_study(journal(folder), policy, stopping=FITTED)
        training.at = deadly(study, 1 + every * deaths)
        try:
            study.run(training, 10)
        except Killed:
            deaths += 1
        else:
            break
        training.at = lambda: None
        study = open_study(journal(folder), policy, stopping=FITTED)
        study.run(training, 10, alone=True)
        assert rows(study) == expected and training.depths() == whole.depths()
        again = {id_ for (id_, _), times in Counter(training.trained).items() if times > 1}
        assert len(again) <= 1  # what was not in a checkpoint when the worker died
    assert deaths > 60 / every


@pytest.mark.slow
def test_operators_are_first_compared_by_the_errors_of_their_fits() -> None:
    """Operators that pause at step 0 are not trained; the policy learns the stored errors of all fits."""
    study, training = open_study(policy="surrogate", stopping=FITTED), Training(fits=True)
    study.run(training, 40)
    table, depths = study.trials, training.depths()
    operators = {operator.id: operator for operator in map(parse, table.operator)}
    assert len(operators) == 40 and {*training.fitted} == operators.keys()
    errors = {parse(text).id: error for text, error in zip(table.operator, table.metric_fit_error, strict=True)}
    assert errors == {id_: fit_error(operator) for id_, operator in operators.items()}
    untrained = sorted(errors[id_] for id_ in operators.keys() - depths)
    assert len(untrained) > 2 and untrained[-1] == max(errors.values()) and untrained[0] > sorted(errors.values())[20]
    assert max(Counter(training.trained).values()) == 1
    resumed = table[(table.outcome == "resumed") & (table.message == "paused after the fit: others are ahead")]
    again = {parse(text).id for text in resumed.operator}
    assert {id_ for id_, times in Counter(training.fitted).items() if times > 1} == again and again <= depths.keys()
    known = study.policy._evaluated.values()  # type: ignore[attr-defined]
    assert all(one.metrics[FIT_ERROR] == fit_error(one.candidate.parsed()) for one in known if one.is_informed)


def test_killed_while_resumed(tmp_path: Path) -> None:
    """The next worker goes on from the same checkpoint, not from the beginning."""
    training = Training()
    study = open_study(journal(tmp_path), "random")
    study.run(training, 12)
    paused = dict(training.states)

    def die() -> None:
        if (study.trials.attempt > 0).any() and study.trials.outcome.iloc[-1] == "running" and study.trials.attempt.iloc[-1]:
            deadly(study, 1)()

    training.at = die
    with pytest.raises(Killed):
        study.run(training, 40)
    training.at = lambda: None
    killed = study.trials.fingerprint.iloc[-1]
    open_study(journal(tmp_path), "random").run(training, 40, alone=True)
    table = open_study(journal(tmp_path), "random").trials
    attempts = table[table.fingerprint == killed]
    assert list(attempts.outcome)[:2] == ["resumed", "interrupted"] and len(attempts) >= 3
    assert paused and max(Counter(training.trained).values()) == 1  # it died before its first step


def test_a_lost_state_is_trained_again(tmp_path: Path) -> None:
    training = Training()
    open_study(journal(tmp_path), "random").run(training, 12)
    training.states.clear()
    study = open_study(journal(tmp_path), "random")
    study.run(training, 40)
    assert max(Counter(training.trained).values()) == 2
    assert study.trials.groupby("fingerprint").outcome.last().isin(["complete", "paused"]).all()


def test_policies_are_told_once_and_checkpoints_of_the_overtaken_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    study, training, told, reported = open_study(), Training(), dict[str, Outcome | None](), dict[tuple[str, float], float]()
    tell, stop = study.policy.tell, study.policy.stop

    def record(candidate: Candidate, outcome: Outcome) -> None:
        assert candidate.fingerprint not in told
        told[candidate.fingerprint] = outcome
        tell(candidate, outcome)

    def stopped(candidate: Candidate) -> None:
        assert candidate.fingerprint not in told
        told[candidate.fingerprint] = None
        stop(candidate)

    def report(candidate: Candidate, step: float, at: float) -> None:
        operator = candidate.parsed()
        assert operator is not None and at == value(operator, step) and (candidate.fingerprint, step) not in reported
        reported[candidate.fingerprint, step] = at

    monkeypatch.setattr(study.policy, "tell", record)
    monkeypatch.setattr(study.policy, "stop", stopped)
    monkeypatch.setattr(study.policy, "report", report)
    study.run(training, 60)
    study.run(training, 60)  # reads once more
    table = study.trials
    assert Counter(step for _, step in reported) == {
        step: sum(depth >= step for depth in training.depths().values()) for step in KEEP
    }
    last = table.groupby("fingerprint").last()
    complete = last[last.outcome == "complete"]
    assert {str(name): told[str(name)] for name in complete.index} == complete.reward.to_dict()
    overtaken = [name for name in told if last.outcome[name] == "paused"]
    assert overtaken and all(told[name] is None for name in overtaken)
    assert len(training.forgotten) == len(overtaken) and not set(training.forgotten) & training.states.keys()
    assert len(training.states) == 60 - len(told)  # these wait, and may be resumed by a longer study


def test_a_user_s_function_without_a_state_begins_again() -> None:
    begun: list[str] = []

    def evaluate(operator: PGraph, report: object) -> dict[str, float]:
        begun.append(operator.id)
        for step in range(1, STEPS + 1):
            report(step, value(operator, step))  # type: ignore[operator]
        return {"accuracy": 0.5}

    study = open_study()
    study.run(evaluate, 30)
    assert len(set(begun)) == 30 < len(begun) == len(study.trials)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    open_study(journal(tmp_path)).run(Training(), 3)
    with pytest.raises(SpecError, match=r"stopping\.keep\.3 is 0\.2 there, absent here"):
        open_study(journal(tmp_path), stopping=HalvingSettings(keep={1: 0.5, 2: 0.3}))
    with pytest.raises(SpecError, match="stopping is"):
        open_study(journal(tmp_path), stopping=None)


class TestRungs:
    def test_the_best_share_goes_on_and_the_first_always_does(self) -> None:
        rungs = Rungs({1: 0.4})
        for trial, at in enumerate([0.1, 0.5, 0.3, 0.2, 0.4]):
            rungs.enter(trial, 1, at)
            assert rungs.goes_on(trial, 1) == (trial != 3)
        assert [rungs.place(trial, 1) for trial in range(5)] == [5, 1, 3, 4, 2]
        assert rungs.best({0: 1, 2: 1, 4: 1}) == [4]

    def test_shares_are_of_all_trials(self) -> None:
        rungs = Rungs({1: 0.5, 2: 0.25})
        for trial in range(8):
            rungs.enter(trial, 1, trial)
        for trial in (5, 6, 7):
            rungs.enter(trial, 2, trial)
        assert rungs.places(2) == 2 and [rungs.goes_on(trial, 2) for trial in (5, 6, 7)] == [False, True, True]
        assert rungs.best({4: 1, 3: 1, 6: 2}) == [6, 4]

    def test_overtaken_for_good(self) -> None:
        rungs = Rungs({1: 0.25})
        rungs.enter(0, 1, 0.0)
        for trial in range(1, 17):
            rungs.enter(trial, 1, trial)
        assert rungs.is_overtaken(0, 1) and not rungs.is_overtaken(16, 1)
        last = max(trial for trial in range(17) if rungs.is_overtaken(trial, 1))
        assert rungs.place(last, 1) > 17 / 4 + 2 * (17 * 3 / 16) ** 0.5 - 2
        for trial in range(17, 100):
            rungs.enter(trial, 1, -trial)
        assert rungs.goes_on(3, 1) and rungs.best({3: 1}) == []  # it was stopped for good before

    def test_values(self) -> None:
        rungs = Rungs({1: 0.5})
        for trial, at in enumerate([float("nan"), 0.1, 0.1]):
            rungs.enter(trial, 1, at)
        rungs.enter(0, 1, 9.0)  # a second time
        assert [rungs.place(trial, 1) for trial in range(3)] == [3, 1, 2]


@pytest.mark.parametrize(
    ("by", "rounds", "expected"),
    [
        ("loss", 4, {0.5: 0.9, 0.75: 0.6, 1.25: 0.5, 1.5: 0.42, 2.25: 0.32, 2.75: 0.25, 3.25: 0.2}),
        ("loss", 1, {0.125: 0.9, 0.1875: 0.6, 0.3125: 0.5, 0.375: 0.42, 0.5625: 0.32, 0.6875: 0.25, 0.8125: 0.2}),
        ("score", 4, {1: 0.6, 2: 0.42, 3: 0.25}),
        ("score", 2, {1: 0.42}),
    ],
)
def test_rungs_by_default(by: Literal["loss", "score"], rounds: int, expected: dict[float, float]) -> None:
    assert HalvingSettings(by=by).rungs(rounds) == expected


@pytest.mark.parametrize(
    ("settings", "rounds", "why"),
    [
        ({"by": "score"}, 1, "one epoch"),
        ({}, None, "give the shares"),
        ({"keep": {1: 0.5, 4: 0.2}}, 4, "keep has 4, and a training ends after 4; give numbers below 4"),
    ],
)
def test_rungs_that_do_not_fit(settings: dict[str, object], rounds: int | None, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        HalvingSettings(**settings).rungs(rounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [{}, {1: 0.2, 2: 0.5}, {1: 1.5}, {1: 0}, "half", {-0.5: 0.5}])
def test_shares_that_mean_nothing(keep: object) -> None:
    with pytest.raises(ValueError, match="keep"):
        HalvingSettings(keep=keep)  # type: ignore[arg-type]


def test_parts_of_epochs_have_no_score() -> None:
    with pytest.raises(ValueError, match="whole epochs only"):
        HalvingSettings(keep={0.5: 0.5}, by="score")
    assert list(HalvingSettings(keep={1.0: 0.5}, by="score").rungs(2)) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["journal:{}/trials", "sqlite:///{}/trials.db"])
def test_three_workers_one_of_them_killed(tmp_path: Path, storage: str) -> None:
    workers = [Forked(paused_worker.work, storage.format(tmp_path), tmp_path, 40) for _ in range(3)]
    notes = tmp_path / "notes"
    while not notes.exists() or len(notes.read_text().splitlines()) < 30:
        time.sleep(0.01)
    workers[0].send_signal(signal.SIGKILL)
    workers[0].communicate()
    for worker in workers[1:]:
        _, errors = worker.communicate(timeout=HANGS_AFTER)
        assert worker.returncode == 0, errors
    trained = Counter(tuple(line.split()[:2]) for line in notes.read_text().splitlines())
    twice = {id_ for (id_, _), times in trained.items() if times > 1}
    assert len(twice) <= 1 and max(trained.values()) <= 2  # what the killed one was at
    table = open_study(storage.format(tmp_path), "evolution").trials
    last = table[table.outcome.isin(["complete", "paused", "resumed"])].groupby("fingerprint").outcome.last()
    assert len(last) == 40 and set(last) == {"complete", "paused"} and (last == "complete").sum() >= 8

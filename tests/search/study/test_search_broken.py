"""Searches whose set-up is broken: a full disk, a bug in the user's function, settings that nothing can be trained with."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import optuna
import pytest
from search_trees import hard_tree
from small_studies import Metrics, diverging, evaluate, proposed, sound, stop, study

from syno.base.errors import DeviceError, SynoError
from syno.base.progress import LogDisplay, Progress
from syno.ir.graph import PGraph
from syno.search.policies import POLICIES
from syno.search.study import Study
from syno.train.contract import Report


def full(operator: PGraph, report: Report) -> Metrics:
    raise OSError(errno.ENOSPC, "No space left on device")


def buggy(operator: PGraph, report: Report) -> Metrics:
    number = int(operator.id, 16)
    raise IndexError(f"Target {number % 7} is out of bounds for {operator.id}, shape {[number % 5, 8, 3][number % 2 :]}")


class Counted:
    """An evaluation that notes the operators it is called with; `behaviours` are those of its calls, the last one repeated."""

    def __init__(self, *behaviours: Callable[[PGraph, Report], Metrics]) -> None:
        self.behaviours, self.operators = behaviours, list[str]()

    def __call__(self, operator: PGraph, report: Report) -> Metrics:
        self.operators.append(operator.id)
        return self.behaviours[min(len(self.operators), len(self.behaviours)) - 1](operator, report)


class TestMachine:
    def test_a_full_disk_stops_the_worker_and_spends_no_trial(self, journal: str) -> None:
        evaluation = Counted(full)
        said = stop(study(journal), evaluation)
        assert "its machine failed: OSError: [Errno 28] No space left on device" in said and "given back" in said
        assert len(evaluation.operators) == 2 and len(set(evaluation.operators)) == 1
        found = study(journal)
        assert set(found.trials.outcome) == {"interrupted"}
        found.run(sound, 5)
        assert (found.trials.outcome == "complete").sum() == 5

    def test_many_failures_of_machines_are_not_the_operators(self, journal: str) -> None:
        for _ in range(4):
            stop(study(journal, most_attempts=1), full)
        found, whole = study(journal, most_attempts=1), study(most_attempts=1)
        for one in (found, whole):
            one.run(evaluate, 10)
        assert proposed(found) == proposed(whole)
        assert found.best(10) and [record.reward for record in found.best(10)] == [record.reward for record in whole.best(10)]

    def test_a_short_failure_is_tried_again(self) -> None:
        evaluation = Counted(sound, full, sound)
        found = study()
        found.run(evaluation, 5, poll_seconds=0)
        assert list(found.trials.outcome) == ["complete", "interrupted", *["complete"] * 4]
        assert evaluation.operators[1] == evaluation.operators[2]

    def test_a_device_that_is_lost_stops_at_once(self) -> None:
        def lost(operator: PGraph, report: Report) -> Metrics:
            raise RuntimeError("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`")

        evaluation = Counted(sound, lost)
        assert "CUDA error: unspecified launch failure" in stop(study(), evaluation)
        assert len(evaluation.operators) == 2

    def test_another_worker_goes_on_with_the_trial(self, journal: str) -> None:
        first, second = study(journal), study(journal)
        stop(first, full)
        second.run(sound, 3)
        trials = second.trials
        assert list(trials.outcome) == ["interrupted"] * 2 + ["complete"] * 3
        assert trials.fingerprint[0] == trials.fingerprint[2]


class TestFunction:
    def test_equal_failures_at_the_start_stop_the_study(self) -> None:
        evaluation, found = Counted(buggy), study()
        said = stop(found, evaluation)
        assert "2 trials in a row failed alike, and none has succeeded; the last: IndexError: Target" in said
        assert "test_search_broken.py, line" in said
        assert len(evaluation.operators) == 2

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", list(POLICIES))
    def test_what_a_bug_spent_is_evaluated_again(self, journal: str, policy: str) -> None:
        """At the start and later: the study becomes one without the bug, on a tree that learns about dead ends."""

        def fresh() -> Study:
            return study(journal, policy=policy, tree=hard_tree())

        whole = study(policy=policy, tree=hard_tree())
        whole.run(evaluate, 14)
        stop(fresh(), buggy)
        fresh().run(evaluate, 6)
        stop(fresh(), buggy)
        for total in (9, 14):  # stopped in between
            found = fresh()
            found.run(evaluate, total)
        kept = found.trials[found.trials.outcome != "withdrawn"]
        assert list(zip(kept.operator, kept.steps, strict=True)) == proposed(whole)
        assert list(kept.reward.fillna(-1)) == list(whole.trials.reward.fillna(-1))
        assert (found.trials.outcome == "withdrawn").sum() == 2 + 10

    def test_the_same_object_goes_on_too(self) -> None:
        whole, found = study(), study()
        whole.run(evaluate, 12)
        stop(found, buggy)
        found.run(evaluate, 12)
        kept = found.trials[found.trials.outcome != "withdrawn"]
        assert list(kept.operator) == list(whole.trials.operator)

    def test_a_bug_that_was_not_mended_stops_it_again(self, journal: str) -> None:
        study(journal).run(sound, 3)
        stop(study(journal), buggy)
        evaluation = Counted(buggy)
        stop(study(journal), evaluation)
        assert len(evaluation.operators) == 2

    def test_when_all_fail_in_different_ways_the_search_says_so(self) -> None:
        kinds: Iterator[type[Exception]] = iter([IndexError, ValueError, TypeError])

        def differently(operator: PGraph, report: Report) -> Metrics:
            raise next(kinds)("words")

        found = study()
        assert "all 3 trials failed; the last: TypeError: words" in stop(found, differently, 3)
        found.run(sound, 3)
        assert list(found.trials.outcome) == ["withdrawn"] * 3 + ["complete"] * 3

    def test_some_failures_among_successes_are_failed_trials_as_ever(self) -> None:
        evaluation = Counted(buggy, sound, *[buggy] * 9, sound)
        found = study()
        found.run(evaluation, 12)
        assert list(found.trials.outcome) == ["failed", "complete", *["failed"] * 9, "complete"]

    def test_nothing_measured_that_the_reward_needs_stops_it(self) -> None:
        assert 'no "accuracy" was measured' in stop(study(), lambda operator, report: {"loss": 1.0})

    def test_every_worker_stops(self, journal: str) -> None:
        """One that evaluated something sound meanwhile, too."""
        other, began = study(journal), list[str]()

        def slow(operator: PGraph, report: Report) -> Metrics:
            began.append(operator.id)
            if len(began) == 1:
                stop(other, buggy)
            return {"accuracy": 0.5}

        found = study(journal)
        assert "2 trials in a row failed alike" in stop(found, slow)
        assert len(began) == 1 and sorted(found.trials.outcome) == ["complete", "withdrawn", "withdrawn"]
        last = study(journal)
        last.run(sound, 4)
        assert (last.trials.outcome == "complete").sum() == 4

    def test_a_study_that_is_open_goes_on_after_another_was_mended(self, journal: str) -> None:
        found = study(journal)
        found.run(sound, 1)
        stop(study(journal), buggy)
        found.run(sound, 3)
        assert list(found.trials.outcome) == ["complete", *["withdrawn"] * 10, *["complete"] * 2]

    def test_a_worker_that_was_killed_before_it_could_stop(self, journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
        class Killed(BaseException):
            pass

        def killed(*arguments: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr("syno.search.storage.store.TrialStore.withdraw", killed)
            with pytest.raises(Killed):
                study(journal).run(buggy, 5)
        found = study(journal)
        found.run(sound, 3)
        assert list(found.trials.outcome) == ["withdrawn"] * 2 + ["complete"] * 3


class TestOperators:
    @pytest.mark.parametrize("bad", [diverging, lambda operator, report: {"accuracy": float("nan")}], ids=["raises", "nan"])
    def test_operators_that_fail_one_after_another_are_no_reason_to_stop(
        self, bad: Callable[[PGraph, Report], Metrics]
    ) -> None:
        found = study()
        found.run(Counted(*[bad] * 15, sound), 17)
        assert list(found.trials.outcome) == ["failed"] * 15 + ["complete"] * 2

    def test_pruned_trials_neither(self) -> None:
        def pruned(operator: PGraph, report: Report) -> Metrics:
            raise optuna.TrialPruned("milestone")

        found = study()
        found.run(pruned, 15)
        assert set(found.trials.outcome) == {"pruned"}

    def test_those_that_kill_their_workers_are_named(self, journal: str) -> None:
        class Killed(BaseException):
            pass

        def deadly(operator: PGraph, report: Report) -> Metrics:
            raise Killed

        found = study(journal, most_attempts=1)
        found._scheduler.finish = lambda task, result: True  # type: ignore[method-assign]  # no time to say anything
        with pytest.raises(Killed):
            found.run(deadly, 1, alone=True)
        with pytest.raises(SynoError, match="its only trial failed: its worker died during the evaluation, 1 times"):
            study(journal, most_attempts=1).run(sound, 1, alone=True)

    def test_a_search_in_which_all_failed_is_an_error(self) -> None:
        found = study()
        said = stop(found, diverging, 4)
        assert "all 4 trials failed; the last: training" in said and "Change the settings" in said
        assert list(found.trials.outcome) == ["failed"] * 4


def test_pruned_trials_are_valid() -> None:
    shown: list[Progress] = []

    class Recorder(LogDisplay):
        def show(self, progress: Progress) -> None:
            shown.append(progress)

    def pruned(operator: PGraph, report: Report) -> Metrics:
        raise optuna.TrialPruned("milestone")

    study().run(Counted(sound, pruned, diverging, sound), 4, display=Recorder())
    assert shown[-1].valid == 3 and "75% valid" in str(shown[-1])


def test_devices_that_do_not_answer_are_the_machines() -> None:
    def gone(operator: PGraph, report: Report) -> Metrics:
        raise DeviceError("the tracker does not answer")

    assert "machine failed: the tracker does not answer" in stop(study(), gone)

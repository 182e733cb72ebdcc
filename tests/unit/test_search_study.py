"""Studies with one worker: what is stored, what goes wrong, where they stop, and that they go on exactly where they stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from search_trees import MockTree, chosen_of, hard_tree, hidden_family_reward, operator_of, small_tree, wide_tree

from syno.errors import SpecError, UnknownNameError
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.search.policies import POLICIES
from syno.search.policies.mcts import MctsSettings
from syno.search.progress import LogDisplay, Progress
from syno.search.reward import AccuracyReward, LossReward
from syno.search.study import Report, Study

FAMILY = frozenset({2, 3, 7, 10, 13})
reward = hidden_family_reward(FAMILY)


def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
    if int(operator.id, 16) % 11 == 0:
        raise RuntimeError("one in eleven evaluations breaks")
    return {"accuracy": 0.1 + 0.9 * reward(operator), "flops": 1e9}


def study(storage: str = "memory:", **changes: Any) -> Study:
    options: dict[str, Any] = {"space_id": "wide", "name": "study", "reward": AccuracyReward(low=0, high=1, power=1), "seed": 1}
    tree = changes.pop("tree", None) or wide_tree()
    return Study(tree, storage=storage, **{**options, **changes})


def proposed(found: Study) -> list[tuple[str, str]]:
    """Operators and their paths, in the order of their first trials."""
    trials = found.trials
    first = trials[(trials.attempt == 0) & (trials.outcome != "duplicate")]
    return list(zip(first.operator, first.steps, strict=True))


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "trials.log")


class TestTrials:
    def test_what_is_stored(self, journal: str) -> None:
        found = study(journal)
        found.run(evaluate, 20)
        trials = found.trials
        assert list(trials.number) == list(range(20))
        row = trials[trials.outcome == "complete"].iloc[0]
        operator = parse(row.operator)
        assert row.fingerprint == wide_tree().fingerprint(operator)
        assert row.metric_accuracy == pytest.approx(0.1 + 0.9 * reward(operator)) == pytest.approx(row.reward)
        assert row.metric_flops == 1e9
        assert row.path.split()[-1] == "Finalize" and row.steps.startswith("add ")
        assert row.version_syno and row.version_python and row.version_optuna
        assert (row.attempt, row.seed) == (0, 1)
        assert row.worker and row.seconds >= 0 and row.started <= row.ended
        failed = trials[trials.outcome == "failed"].iloc[0]
        assert "RuntimeError: one in eleven evaluations breaks" in failed.message
        assert "test_search_study.py" in failed.message  # where
        assert trials[trials.outcome == "failed"].reward.isna().all()

    def test_optuna_reads_the_same(self, journal: str) -> None:
        found = study(journal)
        found.run(evaluate, 20)
        storage = optuna.storages.JournalStorage(JournalFileBackend(journal))
        read = optuna.load_study(study_name="study", storage=storage)
        assert read.best_value == found.best()[0].reward
        assert len(read.get_trials(states=[optuna.trial.TrialState.COMPLETE])) == (found.trials.outcome == "complete").sum()

    def test_the_best_first(self) -> None:
        found = study()
        found.run(evaluate, 60)
        best = found.best(5)
        values = sorted(found.trials.reward.dropna(), reverse=True)
        assert [record.reward for record in best] == values[:5]
        assert all(record.reward == pytest.approx(0.1 + 0.9 * reward(record.operator)) for record in best)
        assert [r.number for r in best] == [r.number for r in sorted(best, key=lambda r: (-r.reward, r.number))]
        assert len(found.best(1000)) == len(values) and found.best(0) == []

    def test_no_trials(self) -> None:
        found = study()
        found.run(evaluate, 0)
        assert len(found.trials) == 0 and found.best() == []


class TestTotal:
    def test_is_of_the_study_not_of_the_run(self, journal: str) -> None:
        first = study(journal)
        first.run(evaluate, 7)
        first.run(evaluate, 7)
        assert len(first.trials) == 7
        second = study(journal)
        second.run(evaluate, 5)
        assert len(second.trials) == 7
        second.run(evaluate, 12)
        assert len(second.trials) == 12

    def test_growing_it_changes_nothing(self, journal: str) -> None:
        whole = study()
        whole.run(evaluate, 40)
        parts = study(journal)
        for total in (1, 2, 17, 40):
            parts.run(evaluate, total)
        assert proposed(parts) == proposed(whole)

    def test_an_exhausted_tree_ends_the_run(self) -> None:
        found = study(tree=small_tree())
        found.run(evaluate, 1000)
        assert len(found.trials) == len(small_tree().leaves())

    def test_a_negative_total_is_an_error(self) -> None:
        with pytest.raises(SpecError, match="n_trials=-1; it is the study's total, 0 or more"):
            study().run(evaluate, -1)


class TestEvaluation:
    def test_no_measurement_is_a_failure_with_the_reason(self) -> None:
        found = study()
        found.run(lambda operator, report: {"loss": 1.0}, 1)
        assert found.trials.outcome[0] == "failed"
        assert found.trials.message[0] == 'no "accuracy" was measured, which the reward "accuracy" needs; measured: loss'
        assert found.trials.metric_loss[0] == 1.0

    def test_metrics_that_are_no_numbers_are_a_failure(self) -> None:
        found = study()
        found.run(lambda operator, report: {"accuracy": "high"}, 1)  # type: ignore[dict-item]
        assert found.trials.outcome[0] == "failed" and "could not convert string to float: 'high'" in found.trials.message[0]

    def test_a_pruned_trial_is_one_of_the_bad_ones(self) -> None:
        def going(operator: PGraph, report: Report) -> Mapping[str, float]:
            for step in range(5):
                report(step, reward(operator))
            return {"accuracy": 0.1 + 0.9 * reward(operator)}

        found = study(pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1))
        found.run(going, 60)
        counts = found.trials.outcome.value_counts()
        assert counts["pruned"] > 5 and counts["complete"] > 5 and counts.sum() == 60
        assert found.trials[found.trials.outcome == "pruned"].message.str.startswith("pruned at step").all()

    def test_an_evaluation_may_make_something_of_being_pruned(self) -> None:
        def going(operator: PGraph, report: Report) -> Mapping[str, float]:
            try:
                report(0, 0.0)
            except optuna.TrialPruned:
                return {"accuracy": 0.25}
            return {"accuracy": 0.5}

        found = study(pruner=optuna.pruners.ThresholdPruner(lower=0.1))
        found.run(going, 3)
        assert list(found.trials.reward) == [0.25] * 3

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
    def test_being_told_to_stop_leaves_the_trial_to_be_retried(self, journal: str, stop: type[BaseException]) -> None:
        whole = study()
        whole.run(evaluate, 12)
        begun: list[str] = []

        def stopped(operator: PGraph, report: Report) -> Mapping[str, float]:
            begun.append(operator.id)
            if len(begun) == 5:
                raise stop
            return evaluate(operator, report)

        found = study(journal)
        with pytest.raises(stop):
            found.run(stopped, 12)
        assert list(found.trials.outcome)[-1] == "interrupted"
        found = study(journal)
        found.run(stopped, 12)
        assert begun[4] == begun[5]
        assert proposed(found) == proposed(whole)
        assert list(found.trials.attempt) == [0] * 5 + [1] + [0] * 7

    def test_an_operator_that_kills_its_workers_fails_in_the_end(self, journal: str) -> None:
        class Killed(BaseException):
            pass

        begun: list[str] = []

        def deadly(operator: PGraph, report: Report) -> Mapping[str, float]:
            begun.append(operator.id)
            if len(begun) <= 2:
                raise Killed
            return evaluate(operator, report)

        for _ in range(2):
            found = study(journal, most_attempts=2)
            found._dispatch.finish = lambda task, result: True  # type: ignore[method-assign]  # no time to say anything
            with pytest.raises(Killed):
                found.run(deadly, 3, alone=True)
        found = study(journal, most_attempts=2)
        found.run(lambda operator, report: {"accuracy": 0.5}, 3, alone=True)
        assert begun[0] == begun[1]
        assert list(found.trials.outcome) == ["interrupted", "interrupted", "complete", "complete"]
        assert list(found.trials.attempt) == [0, 1, 0, 0]


class TestSettings:
    def test_an_existing_study_must_have_the_same(self, journal: str) -> None:
        study(journal)
        study(journal)
        for changes, message in (
            ({"space_id": "other"}, "space is 'wide' there, 'other' here"),
            ({"seed": 2}, "seed is 1 there, 2 here"),
            ({"policy": "random"}, "policy.name is 'mcts' there, 'random' here"),
            ({"policy_settings": MctsSettings(widening=0.5)}, "policy.widening is 0.8 there, 0.5 here"),
            ({"reward": AccuracyReward(low=0.1, high=1, power=1)}, "reward.low is 0.0 there, 0.1 here"),
            ({"reward": LossReward()}, "reward.name is 'accuracy' there, 'loss' here"),
            ({"most_attempts": 5}, "most_attempts is 3 there, 5 here"),
            ({"warm_start": [operator_of(frozenset({2, 3, 7, 10}))]}, r"warm_start is \[\] there, \['means"),
        ):
            with pytest.raises(SpecError, match=message) as error:
                study(journal, **changes)
            assert str(error.value).count(" there, ") == 1
            assert str(error.value).endswith("Give those it has to go on with it, or another name to begin a new one")
        study(journal, name="another", seed=2)

    def test_unknown_policy(self) -> None:
        with pytest.raises(UnknownNameError, match="there are: evolution, mcts, random"):
            study(policy="greedy")


class TestWarmStart:
    given = tuple(operator_of(frozenset(chosen)) for chosen in ({2, 3, 7, 10}, {3, 5, 6, 10, 11}))

    def test_given_operators_come_first_and_are_remembered(self, journal: str) -> None:
        found = study(journal, warm_start=self.given)
        found.run(evaluate, 1)
        found = study(journal, warm_start=self.given)
        found.run(evaluate, 10)
        assert [parse(text) for text in found.trials.operator[:2]] == list(self.given)
        assert found.trials.name[0] == "set_2_3_7_10"
        assert found.trials.fingerprint.is_unique and found.rejected == []

    def test_those_not_in_the_space_are_reported_with_the_reason(self) -> None:
        too_small, forbidden, again = (operator_of(frozenset(chosen)) for chosen in ({2, 3}, {0, 1, 3, 5}, {2, 3, 7, 10}))
        with pytest.warns(UserWarning, match="warm start without") as warned:
            found = study(warm_start=[too_small, self.given[0], forbidden, again])
        assert [rejected.operator for rejected in found.rejected] == [too_small, forbidden, again]
        assert len(warned) == 3
        reasons = [rejected.reason for rejected in found.rejected]
        assert "needs (4, 5) operations" in reasons[0] and "set_0_1_3_5" in reasons[1]
        assert reasons[2].startswith('it means the same as "set_2_3_7_10" (') and reasons[2].endswith("), given before")
        found.run(evaluate, 1)
        assert parse(found.trials.operator[0]) == self.given[0]


class Killed(BaseException):
    """As a kill: nothing that happens afterwards in this process counts."""


class MortalJournal(JournalFileBackend):
    """Dies at its n-th write, before or after it."""

    def __init__(self, path: str, die_at: float, after: bool) -> None:
        super().__init__(path)
        self.writes, self.die_at, self.after = 0, die_at, after

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.writes += 1
        if self.writes > self.die_at or (self.writes == self.die_at and not self.after):
            raise Killed
        super().append_logs(logs)
        if self.writes == self.die_at:
            raise Killed


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, bool], list[MortalJournal]]:
    """Makes the journals that are opened from now on die at their n-th write."""

    def arrange(die_at: float, after: bool) -> list[MortalJournal]:
        opened: list[MortalJournal] = []

        def open_(path: str, lock_obj: object) -> MortalJournal:
            opened.append(MortalJournal(path, die_at, after))
            return opened[-1]

        monkeypatch.setattr("syno.search.storage.JournalFileBackend", open_)
        return opened

    return arrange


class TestGoingOnExactly:
    """A study that was killed proposes what an uninterrupted one does. On a tree that learns about dead ends."""

    @pytest.mark.parametrize("policy", list(POLICIES))
    @pytest.mark.parametrize("after", [False, True])
    def test_killed_at_any_write(
        self, tmp_path: Path, policy: str, after: bool, mortal: Callable[[float, bool], list[MortalJournal]]
    ) -> None:
        whole = study(policy=policy)
        whole.run(evaluate, 5)
        opened = mortal(float("inf"), after)
        study(str(tmp_path / "count.log"), policy=policy).run(evaluate, 5)
        for die_at in range(1, opened[0].writes + 1):
            journal = str(tmp_path / f"{die_at}.log")
            mortal(die_at, after)
            with pytest.raises(Killed):
                study(journal, policy=policy).run(evaluate, 5)
            mortal(float("inf"), after)
            found = study(journal, policy=policy)
            found.run(evaluate, 5, alone=True)
            assert proposed(found) == proposed(whole), f"killed at write {die_at}"
            assert found._dispatch.ledger.finished == 5

    @pytest.mark.parametrize("make_tree", [wide_tree, hard_tree])
    @pytest.mark.parametrize("policy", list(POLICIES))
    def test_killed_again_and_again(
        self,
        tmp_path: Path,
        policy: str,
        make_tree: Callable[[], MockTree],
        mortal: Callable[[float, bool], list[MortalJournal]],
    ) -> None:
        options = {"policy": policy, "most_attempts": 100}
        whole = study(tree=make_tree(), **options)
        whole.run(evaluate, 60)
        journal, lives = str(tmp_path / "trials.log"), 0
        while True:
            mortal(7 + 2 * lives % 5, bool(lives % 2))
            lives += 1
            try:
                found = study(journal, tree=make_tree(), **options)
                found.run(evaluate, 60, alone=True)
            except Killed:
                continue
            break
        assert lives > 10
        assert proposed(found) == proposed(whole)

    def test_an_error_of_the_storage_leaves_a_study_that_goes_on(
        self, tmp_path: Path, mortal: Callable[[float, bool], list[MortalJournal]]
    ) -> None:
        """In the same process, with the same object: its own trial is not taken for that of a living worker."""
        whole = study()
        whole.run(evaluate, 8)
        opened = mortal(12, False)
        found = study(str(tmp_path / "trials.log"))
        with pytest.raises(Killed):
            found.run(evaluate, 8)
        opened[0].die_at = float("inf")
        found.run(evaluate, 8)
        assert proposed(found) == proposed(whole)


class TestDisplay:
    def test_is_shown_every_trial(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown: list[Progress] = []

        class Recorder(LogDisplay):
            def show(self, progress: Progress) -> None:
                shown.append(progress)

        study().run(evaluate, 10, display=Recorder(), notes=lambda: {"rejected": 3})
        assert [progress.finished for progress in shown] == list(range(11))
        last = shown[-1]
        assert (last.total, last.running, last.title, last.notes) == (10, 0, "study", {"rejected": 3})
        assert last.valid_rate is not None and 0.5 < last.valid_rate <= 1
        assert last.best is not None and last.remaining_seconds == 0 and last.rate > 0


def test_importing_it_loads_no_framework() -> None:
    code = "import sys, syno.search.study; print('torch' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_mock_operators_are_told_apart() -> None:
    """The tests rest on it."""
    assert all(chosen_of(operator_of(chosen)) == chosen for chosen in (frozenset({0}), frozenset({3, 17}), FAMILY))
    assert len({leaf.id for leaf in MockTree(6, (3,)).leaves()}) == 20

"""Studies with one worker: what is stored, where they stop, and what they begin with."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from search_trees import MockTree, chosen_of, hard_tree, operator_of, small_tree, wide_tree
from small_studies import FAMILY, evaluate, proposed, reward, study

from syno.base.errors import SpecError, UnknownNameError
from syno.base.progress import LogDisplay, Progress
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.search.policies.mcts import MctsSettings
from syno.search.reward import AccuracyReward, LossReward
from syno.search.storage.records import attributes
from syno.search.storage.store import read_settings, read_trials
from syno.search.study import KnownResult
from syno.train.contract import Report


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
        assert "small_studies.py" in failed.message  # where
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

    @pytest.mark.slow
    def test_many_trials_are_passed_over_by_the_garbage_collector_until_the_end(self) -> None:
        class Cycle:
            def __init__(self) -> None:
                self.itself = self

        passed_over: list[int] = []
        cycles: list[weakref.ref[Cycle]] = []

        def evaluation(operator: PGraph, report: Report) -> dict[str, float]:
            passed_over.append(gc.get_freeze_count())
            cycles.append(weakref.ref(Cycle()))
            return {"accuracy": 0.5, "flops": 1e9}

        study().run(evaluation, 101)
        assert not any(passed_over[:99]) and passed_over[-1] > 1000
        assert not any(cycle() for cycle in cycles[:99])
        assert not gc.get_freeze_count()

    @pytest.mark.slow
    def test_workers_hear_what_others_found_closed(self, journal: str) -> None:
        first, second = study(journal, tree=hard_tree()), study(journal, tree=hard_tree())
        first.run(evaluate, 100)
        stored = [trial.user_attrs["closed"] for trial in read_trials(journal, "study")]
        names = [name for closed in stored for name in closed]
        assert names and len(names) == len(set(names))
        second.run(evaluate, 0)
        heard = second.policy.walks
        assert all(heard.is_closed(frozenset(map(int, name.split()))) for name in names if name.replace(" ", "").isdigit())

    @pytest.mark.slow
    def test_what_is_found_closed_is_told_a_little_at_a_time(self, journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.search.scheduler.CLOSED_AT_ONCE", 1)
        found = study(journal, tree=hard_tree())
        found.run(evaluate, 100)
        told = [trial.user_attrs["closed"] for trial in read_trials(journal, "study")]
        assert max(map(len, told)) == 1 and len({name for names in told for name in names}) > 10
        assert len(found.policy.found_closed) > 1  # what is still to be told

    @pytest.mark.slow
    def test_trials_of_earlier_versions_have_nothing_closed(self, journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def without(*arguments: Any, **more: Any) -> dict[str, Any]:
            stored = attributes(*arguments, **more)
            del stored["closed"], stored["checksum"]
            return stored

        monkeypatch.setattr("syno.search.scheduler.attributes", without)
        study(journal, tree=hard_tree()).run(evaluate, 100)
        monkeypatch.undo()
        found = study(journal, tree=hard_tree())
        found.run(evaluate, 170)
        assert len(proposed(found)) == 170

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


class TestSettings:
    def test_an_existing_study_must_have_the_same(self, journal: str) -> None:
        study(journal).run(evaluate, 1)
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
        with pytest.raises(UnknownNameError, match="there are: evolution, mcts, random, surrogate"):
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
        assert reasons[2].startswith('it computes the same as "set_2_3_7_10" (') and reasons[2].endswith(
            "), which is earlier in the list"
        )
        found.run(evaluate, 1)
        assert parse(found.trials.operator[0]) == self.given[0]


class TestKnownResults:
    """Operators whose results are known before the search are told to the policy, and are no trials."""

    given = tuple(operator_of(frozenset(chosen)) for chosen in ({2, 3, 7, 10}, {3, 5, 6, 10, 11}))

    @pytest.mark.parametrize("policy", ["random", "mcts", "evolution", "surrogate"])
    def test_a_study_goes_on_with_what_it_knows(self, policy: str, journal: str) -> None:
        known = [KnownResult(operator, {"accuracy": 0.7}) for operator in self.given]
        assert read_settings(f"journal:{journal}", "study") == {}
        whole = study(policy=policy, known=known)
        whole.run(evaluate, 10)
        for total in (4, 10):
            parts = study(journal, policy=policy, known=known)
            parts.run(evaluate, total)
        assert proposed(parts) == proposed(whole) and len(parts.trials) == 10
        assert not {operator.id for operator in self.given} & {parse(text).id for text in parts.trials.operator}
        stored = read_settings(f"journal:{journal}", "study")["known"]
        assert [(parse(one["operator"]), one["metrics"]) for one in stored] == [(one, {"accuracy": 0.7}) for one in self.given]
        with pytest.raises(SpecError, match="known"):
            study(journal, policy=policy, known=known[:1])


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

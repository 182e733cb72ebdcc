"""How the evaluation of a trial may end, and what becomes of the trial."""

from __future__ import annotations

from collections.abc import Mapping

import optuna
import pytest
from small_studies import evaluate, proposed, study

from syno.ir.graph import PGraph
from syno.train.contract import Report


class TestEvaluation:
    def test_no_measurement_is_a_failure_with_the_reason(self) -> None:
        found = study()
        found.run(evaluate, 1)
        found.run(lambda operator, report: {"loss": 1.0}, 2)
        assert list(found.trials.outcome) == ["complete", "failed"]
        assert found.trials.message[1] == 'no "accuracy" was measured, which the reward "accuracy" needs; measured: loss'
        assert found.trials.metric_loss[1] == 1.0

    def test_metrics_that_are_no_numbers_are_a_failure(self) -> None:
        found = study()
        found.run(evaluate, 1)
        found.run(lambda operator, report: {"accuracy": "high"}, 2)  # type: ignore[dict-item]
        assert found.trials.outcome[1] == "failed" and "could not convert string to float: 'high'" in found.trials.message[1]

    def test_an_evaluation_may_prune_its_trial(self) -> None:
        def pruned(operator: PGraph, report: Report) -> Mapping[str, float]:
            report(0, 0.25)
            raise optuna.TrialPruned("too slow")

        found = study()
        found.run(pruned, 2)
        assert list(found.trials.outcome) == ["pruned"] * 2 and list(found.trials.message) == ["too slow"] * 2

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
            found._scheduler.finish = lambda task, result: True  # type: ignore[method-assign]  # no time to say anything
            with pytest.raises(Killed):
                found.run(deadly, 3, alone=True)
        found = study(journal, most_attempts=2)
        with pytest.warns(
            UserWarning, match="operator of trial 0 counts as failed: its worker died during the evaluation, 2 times"
        ):
            found.run(lambda operator, report: {"accuracy": 0.5}, 3, alone=True)
        assert begun[0] == begun[1]
        assert list(found.trials.outcome) == ["interrupted", "failed", "complete", "complete"]
        assert list(found.trials.attempt) == [0, 1, 0, 0]

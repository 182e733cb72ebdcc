"""Signals stop a worker where that does no harm, and once."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from small_studies import evaluate, study

from syno.ir.graph import PGraph
from syno.search.evaluation import Stoppable, StoppingDisplay
from syno.search.workers import Interruption
from syno.train.contract import FunctionEvaluation, FunctionReport, Report


def send_to_itself(number: signal.Signals) -> dict[str, object]:
    os.kill(os.getpid(), number)
    return {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_raises_where_it_is_allowed(number: signal.Signals) -> None:
    with Interruption() as stop, pytest.raises(KeyboardInterrupt), stop.allowed():
        send_to_itself(number)


def test_elsewhere_it_is_noted() -> None:
    with Interruption() as stop:
        send_to_itself(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            stop.check()


def test_a_second_ctrl_c_raises_anywhere() -> None:
    with Interruption():
        send_to_itself(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send_to_itself(signal.SIGINT)


def test_two_sigterms_as_slurm_sends_them_when_the_time_is_up() -> None:
    given_back = []
    with Interruption() as stop, pytest.raises(KeyboardInterrupt), stop.allowed():
        try:
            send_to_itself(signal.SIGTERM)
        finally:  # on the way out, as when a trial is given back
            send_to_itself(signal.SIGTERM)
            given_back.append("trial")
    assert given_back == ["trial"]


def test_a_signal_while_a_step_is_reported_stops_the_evaluation_after_that() -> None:
    operator: Any = None  # it is not looked at
    reported = []

    def report(step: int, value: float) -> None:
        send_to_itself(signal.SIGTERM)
        reported.append(step)

    def reporting(operator: PGraph, report: Report) -> Mapping[str, float]:
        report(1, 0.5)
        report(2, 0.5)
        return {}

    with Interruption() as stop, pytest.raises(KeyboardInterrupt):
        Stoppable(FunctionEvaluation(reporting), stop)(operator, FunctionReport(report))
    assert reported == [1]


def test_a_signal_while_a_trial_begins_gives_it_back() -> None:
    """A worker that is told to stop has not died: after some deaths, an operator counts as failed."""
    found = study()
    for _ in range(4):
        with Interruption() as stop, pytest.raises(KeyboardInterrupt):
            found.run(evaluate, 1, display=StoppingDisplay(stop), notes=lambda: send_to_itself(signal.SIGTERM))
    found.run(evaluate, 1)
    trials = found.trials
    assert list(trials.outcome) == ["interrupted"] * 4 + ["complete"] and trials.operator.nunique() == 1
    assert set(trials.message[:4]) == {"the worker was told to stop"}

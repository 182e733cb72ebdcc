"""Operators that cannot meet the goal of a search are not evaluated, and do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from small_studies import proposed, reward, study

from syno.base.progress import Progress
from syno.ir.graph import PGraph
from syno.search.screening import ScreenedEvaluation
from syno.search.storage.records import table
from syno.search.storage.store import with_withdrawn
from syno.train.contract import Evaluation, Report, Screening


class Watched(Evaluation):
    """An evaluation that screens two of three operators, and remembers what it was asked."""

    def __init__(self, stop_at: int = 0) -> None:
        self.screened: list[str] = []
        self.evaluated: list[str] = []
        self.stop_at = stop_at

    def screen(self, operator: PGraph) -> Screening:
        self.screened.append(operator.id)
        speed = 0.5 + int(operator.id[:8], 16) % 3
        return Screening({"speedup": speed}, None if speed > 2 else f"too slow: {speed}")

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        self.evaluated.append(operator.id)
        if len(self.evaluated) == self.stop_at:
            raise KeyboardInterrupt
        return {"accuracy": 0.1 + 0.9 * reward(operator)}


class Shown:
    """A display that remembers the last progress."""

    last: Progress

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, progress: Progress) -> None:
        self.last = progress


@pytest.mark.parametrize("policy", ["mcts", "surrogate"])
def test_screened_trials_do_not_count_and_keep_their_metrics(policy: str) -> None:
    evaluate, shown, found = Watched(), Shown(), study(policy=policy)
    found.run(evaluate, 6, display=shown)
    trials = found.trials
    passed = trials[trials.outcome == "complete"]
    out = trials[trials.outcome == "screened"]
    assert len(passed) == 6 and len(out) > 0 and set(trials.outcome) == {"complete", "screened"}
    assert set(passed.metric_speedup) == {2.5} and set(out.metric_speedup) <= {0.5, 1.5} and out.reward.isna().all()
    assert out.message.str.startswith("too slow: ").all()
    assert len(evaluate.evaluated) == 6 and len(evaluate.screened) == len(trials) == trials.fingerprint.nunique()
    assert "6 of 6 trained, " in str(
        shown.last
    ) and f"screened out: {len(out)} too slow (the fastest {out.metric_speedup.max():.2f}x)" in str(shown.last)


def test_an_interrupted_trial_is_not_screened_again(journal: str) -> None:
    """The search goes on as one that was not interrupted, on a fresh policy; the journal holds the screening."""
    whole, all_at_once = study(policy="surrogate"), Watched()
    whole.run(all_at_once, 5)
    evaluate, found = Watched(stop_at=3), study(journal, policy="surrogate")
    with pytest.raises(KeyboardInterrupt):
        found.run(evaluate, 5)
    found = study(journal, policy="surrogate")
    found.run(evaluate, 5)
    assert evaluate.screened == all_at_once.screened and evaluate.evaluated[2] == evaluate.evaluated[3]
    assert proposed(found) == proposed(whole)


def test_a_search_ends_after_so_many_screened(journal: str) -> None:
    def none(operator: PGraph) -> Screening:
        return Screening({}, "too large: 2")

    def never(operator: PGraph, report: Report) -> Mapping[str, float]:
        raise AssertionError(operator)

    for _ in range(2):  # the second run finds the limit reached
        found = study(journal)
        found.run(ScreenedEvaluation(never, none), 4, most_screened=7)
        assert list(found.trials.outcome) == ["screened"] * 7
    found.run(ScreenedEvaluation(Watched(), none), 4, most_screened=9)
    assert len(found.trials) == 9


def test_equal_failures_are_recognised_between_screened_trials() -> None:
    evaluate = Watched()

    def broken(operator: PGraph, report: Report) -> Mapping[str, float]:
        raise RuntimeError("a bug")

    found = study()
    with pytest.raises(
        Exception, match="2 trials in a row failed alike, and none has succeeded; the last: RuntimeError: a bug"
    ):
        found.run(ScreenedEvaluation(broken, evaluate.screen), 20)
    assert set(table(with_withdrawn(found._store.trials(), found._store.attributes)).outcome) == {"screened", "withdrawn"}


def test_a_study_in_which_nothing_was_trained_takes_another_goal(journal: str) -> None:
    from syno.search.goal import Goal

    def some(most: int, **goal: Any) -> list[str]:
        found = study(journal, policy="surrogate", goal=Goal(**goal))
        found.run(ScreenedEvaluation(Watched(), lambda operator: Screening({}, "too slow: 1")), 4, most_screened=most)
        return list(found.trials.outcome)

    assert some(3, speedup=3) == ["screened"] * 3
    with pytest.warns(UserWarning, match="takes other settings, .* goal.speedup is 3.0 there, 2.0 here"):
        assert some(2, speedup=2) == ["withdrawn"] * 3 + ["screened"] * 2

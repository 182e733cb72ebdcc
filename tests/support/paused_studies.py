"""A study whose evaluations take four steps, pause after one or a part of one, and are resumed; its worker may be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_trees import hidden_family_reward, wide_tree

from syno.ir.graph import PGraph
from syno.search.halving import HalvingSettings
from syno.search.reward import AccuracyReward
from syno.search.storage.store import TrialStore
from syno.search.study import Study
from syno.train.contract import FIT_ERROR, Evaluation, Report
from syno.train.progress import Paused

STEPS = 4
KEEP = {0.5: 0.8, 1: 0.5, 2: 0.3, 3: 0.2}
WITH_FITS = {0: 0.8, **KEEP}
reward = hidden_family_reward(frozenset({2, 3, 7, 10, 13}))


class Killed(BaseException):
    """The worker is dead: nothing that it does after this is stored."""


def value(operator: PGraph, step: float) -> float:
    """The value after a step: the final one, less something made up that becomes smaller with every step."""
    noise = int(operator.id[:6], 16) % 97 / 97
    return reward(operator) - 0.3 * noise * (STEPS - step)


def fit_error(operator: PGraph) -> float:
    """The error of the fit, from which much of the first value follows."""
    return 2.0 - value(operator, 1)


@dataclass
class Training(Evaluation):
    """An evaluation that keeps its state, as on a disk: how many steps of each operator are done.

    Attributes:
        fits: whether operators that begin are fitted first.
        fitted: those that were, in order, by id.
        states: steps done of paused operators, by id; those of `running` are lost with the worker.
        trained: every step that was trained, in order.
    """

    fits: bool = False
    fitted: list[str] = field(default_factory=list)
    states: dict[str, float] = field(default_factory=dict)
    trained: list[tuple[str, float]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    at: Callable[[], None] = lambda: None

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        done = self.states.get(operator.id, 0)
        if self.fits and not done:
            self.fitted.append(operator.id)
            report.measured({FIT_ERROR: fit_error(operator)})
        for step in sorted({*report.looks, *range(1, STEPS + 1)}):
            if step > done:
                self.at()
                self.trained.append((operator.id, step))
            try:
                if step in range(1, STEPS + 1):
                    report(step, value(operator, step))
                else:
                    report.recent_loss(step, -value(operator, step))
            except Paused:
                self.states[operator.id] = step
                raise
        self.states.pop(operator.id, None)
        return {"accuracy": 0.1 + 0.9 * reward(operator)}

    def forget(self, operator: PGraph) -> None:
        self.states.pop(operator.id, None)
        self.forgotten.append(operator.id)

    def depths(self) -> dict[str, float]:
        """How many steps of each operator were trained."""
        return dict(sorted(self.trained, key=lambda one: one[1]))


def open_study(storage: str = "memory:", policy: str = "mcts", **changes: Any) -> Study:
    options: dict[str, Any] = {"stopping": HalvingSettings(keep=KEEP), "seed": 1, **changes}
    return Study(
        wide_tree(),
        space_id="wide",
        name="paused",
        storage=storage,
        policy=policy,
        reward=AccuracyReward(low=0, high=1, power=1),
        most_attempts=1000,
        **options,
    )


def deadly(study: Study, at: int) -> Callable[[], None]:
    """Let the worker of a study die at its `at`-th access to what is stored, or step of training; returns what counts steps.

    From then on, every access raises, as those after a death never come to be.
    """
    store, count = study._store, 0

    def counted() -> None:
        nonlocal count
        count += 1
        if count >= at:
            raise Killed

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counted()
            return method(*arguments)

        return call

    for name in ("create", "annotate", "end", "report"):
        setattr(store, name, dying(getattr(TrialStore, name).__get__(store)))
    return counted


def journal(folder: Path) -> str:
    return f"journal:{folder}/trials"

"""Replays of stopping rules: those of Optuna decide as Optuna does, and what halving trains is counted right."""

from __future__ import annotations

import random
from collections.abc import Sequence

import optuna
import pytest
from optuna.pruners import BasePruner

from syno.paper.replay.stopping import Rule, brackets, halving, milestones, percentile, promotion
from syno.search.halving import HalvingSettings


def curves(seed: int, count: int = 60) -> list[list[float]]:
    """Rising values of as many trials, which cross."""
    rng = random.Random(seed)
    ends = [rng.random() for _ in range(count)]
    return [[end * (0.4 + 0.2 * epoch) + 0.1 * rng.random() for epoch in range(1, 5)] for end in ends]


def by_optuna(pruner: BasePruner, found: Sequence[Sequence[float]]) -> list[int]:
    """How many epochs of each trial are trained."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study, epochs = optuna.create_study(pruner=pruner, direction="maximize"), []
    for curve in found:
        trial, pruned = study.ask(), False
        for epoch, value in enumerate(curve, 1):
            trial.report(value, epoch)
            if pruned := trial.should_prune():
                break
        epochs.append(epoch)
        study.tell(trial, None if pruned else curve[-1], optuna.trial.TrialState.PRUNED if pruned else None)
    return epochs


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("rule", "pruner"),
    [
        (percentile(75, 8), optuna.pruners.PercentilePruner(75, n_startup_trials=8, n_warmup_steps=1)),
        (percentile(50, 5), optuna.pruners.MedianPruner(n_startup_trials=5)),
        (promotion(2), optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)),
        (promotion(4, (1,)), optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4)),
    ],
    ids=["percentile", "median", "halving by 2", "halving by 4"],
)
def test_pruners_decide_as_optuna_s(rule: Rule, pruner: BasePruner, seed: int) -> None:
    found = curves(seed)
    expected = by_optuna(pruner, found)
    assert rule(found).epochs == expected and min(expected) < 4


def test_milestones() -> None:
    work = milestones({1: 0.5, 3: 0.9})([[0.6, 0.7, 0.8, 1.0], [0.4, 1, 1, 1], [0.5, 0.1, 0.9, 1]])
    assert work.epochs == [3, 1, 4] and work.order == [0, 0, 0, 1, 2, 2, 2, 2]


def test_milestones_count_as_complete_beside_a_pruner() -> None:
    """As a search has them: a training that misses one ends without a report."""
    work = percentile(50, 2, {1: 0.5})([[0.1, 1, 1], [0.2, 1, 1], [0.9, 0.9, 0.9], [0.6, 0.6, 0.6], [0.95, 0.95, 0.95]])
    assert work.epochs == [1, 1, 3, 1, 3]


def test_halving_resumes_what_comes_to_belong_to_the_best() -> None:
    work = halving({1: 0.5})([[0.9, 1], [0.5, 1], [0.4, 1], [0.3, 1], [0.2, 1]])
    assert work.order == [0, 0, 1, 2, 1, 3, 4, 2]  # 1 after 2 began, 2 after 4
    assert work.epochs == [2, 2, 2, 1, 1]


def test_halving_after_parts_of_epochs() -> None:
    work = halving({0.5: 0.5}, parts=2)([[0.9, 1, 1, 1], [0.5, 1, 1, 1]])
    assert work.order == [0, 0, 0, 0, 1]


def test_what_large_studies_train() -> None:
    settings, found = HalvingSettings(by="score"), curves(0, 2000)
    work = halving(settings.rungs(4))(found)
    assert len(work.order) / 8000 == pytest.approx(settings.part_of_training(4), rel=0.05)
    assert settings.part_of_training(4) == pytest.approx((1 + 0.6 + 0.42 + 0.25) / 4)
    best = sorted(range(2000), key=lambda trial: -found[trial][-1])[:100]
    assert sum(work.epochs[trial] == 4 for trial in best) >= 98


def test_brackets_take_trials_in_turn() -> None:
    work = brackets([{1: 0.5}, {}])([[0.9, 1], [0.1, 1], [0.1, 1], [0.05, 1]])
    assert work.epochs == [2, 2, 1, 2]

"""Studies of a tree of sets, in which some operators are better than others and some break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from search_trees import hidden_family_reward, wide_tree

from syno.base.errors import SynoError, TrainingError
from syno.ir.graph import PGraph
from syno.search.policies.surrogate import SurrogateSettings
from syno.search.reward import AccuracyReward
from syno.search.study import Study
from syno.train.contract import Report

Metrics = Mapping[str, float]
FAMILY = frozenset({2, 3, 7, 10, 13})
reward = hidden_family_reward(FAMILY)


def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
    if int(operator.id, 16) % 11 == 0:
        raise RuntimeError("one in eleven evaluations breaks")
    return {"accuracy": 0.1 + 0.9 * reward(operator), "flops": 1e9}


def study(storage: str = "memory:", **changes: Any) -> Study:
    options: dict[str, Any] = {"space_id": "wide", "name": "study", "reward": AccuracyReward(low=0, high=1, power=1), "seed": 1}
    tree = changes.pop("tree", None) or wide_tree()
    if changes.get("policy") == "surrogate":  # what is promised holds for any number of candidates
        options["policy_settings"] = SurrogateSettings(trees=4, beginner_walks=2, walks=2, mutations=2)
    return Study(tree, storage=storage, **{**options, **changes})


def proposed(found: Study) -> list[tuple[str, str]]:
    """Operators and their paths, in the order of their first trials."""
    trials = found.trials
    first = trials[(trials.attempt == 0) & (trials.outcome != "duplicate")]
    return list(zip(first.operator, first.steps, strict=True))


def diverging(operator: PGraph, report: Report) -> Metrics:
    raise TrainingError(f"training {operator.name} broke: the loss is nan at step 3")


def sound(operator: PGraph, report: Report) -> Metrics:
    return {"accuracy": 0.5}


def stop(found: Study, evaluation: Callable[[PGraph, Report], Metrics], n_trials: int = 30) -> str:
    """Run the study, which stops; returns the reason."""
    with pytest.raises(SynoError) as error:
        found.run(evaluation, n_trials, poll_seconds=0)
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 500
    return str(error.value)

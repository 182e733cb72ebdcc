"""Studies of a tree of sets, in which some operators are better than others and some break."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_trees import hidden_family_reward, wide_tree

from syno.ir.graph import PGraph
from syno.search.evaluation import Report
from syno.search.reward import AccuracyReward
from syno.search.study import Study

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

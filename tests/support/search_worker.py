"""One worker of a study on a mock tree: it notes every evaluation that it begins or ends in a file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from search_trees import hidden_family_reward, wide_tree

from syno.ir.graph import PGraph
from syno.search.reward import AccuracyReward
from syno.search.study import Study
from syno.train.contract import Report

FAMILY = frozenset({2, 3, 7, 10, 13})


def open_study(
    storage: str, policy: str, heartbeat_seconds: float = 1, grace_seconds: float = 3, name: str = "shared"
) -> Study:
    return Study(
        wide_tree(),
        space_id="wide",
        name=name,
        storage=storage,
        policy=policy,
        seed=3,
        reward=AccuracyReward(low=0, high=1, power=1),
        most_attempts=1000,
        heartbeat_seconds=heartbeat_seconds,
        grace_seconds=grace_seconds,
    )


def work(storage: str, policy: str, trials: int, notes: Path, seconds: float = 0.0, name: str = "shared") -> None:
    """Work on a study until it has so many trials. An evaluation takes so many seconds."""
    reward = hidden_family_reward(FAMILY)

    def note(line: str) -> None:
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
        note(f"begin {operator.id} {os.getpid()}")
        if operator.id.startswith("0"):
            raise RuntimeError("one in sixteen evaluations breaks")
        time.sleep(seconds)
        note(f"end {operator.id} {os.getpid()}")
        return {"accuracy": 0.1 + 0.9 * reward(operator)}

    open_study(storage, policy, name=name).run(evaluate, trials, poll_seconds=0.1)

"""The options whose defaults follow from other options of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from syno.config.stages import SelectSettings
from syno.search.goal import Goal
from syno.search.goal_reward import GoalReward
from syno.search.reward import RelativeReward

OF_TRAINING: Mapping[str, Any] = {"reward": {"name": RelativeReward.name}, "policy": {"name": "surrogate"}}


def following(
    evaluation: str, goal: Goal | None, reward: Mapping[str, Any], select: SelectSettings, given: Set[str]
) -> dict[str, Any]:
    """Return the options of a search for a network whose defaults follow from others.

    Args:
        evaluation: its name.
        goal: the goal; None if there is none.
        reward: the reward, as it is without these defaults.
        select: the selection, likewise.
        given: names of the options that the experiment gives.
    """
    found = {name: default for name, default in OF_TRAINING.items() if name not in given and evaluation == "training"}
    is_selected = "by" not in select.model_fields_set and not select.operators and select.source is None
    if goal is None:
        if is_selected and evaluation == "cost":  # trials have no score, which a front needs
            found["select"] = select.model_copy(update={"by": "reward"})
        return found
    if "policy" not in given:
        found["policy"] = OF_TRAINING["policy"]
    if "reward" not in given or reward.get("name") == GoalReward.name:
        numbers = {"find": goal.find, "speedup": goal.speedup, "lose_at_most": goal.lose_at_most}
        own = reward if "reward" in given else {}
        found["reward"] = {"name": GoalReward.name, **{name: one for name, one in numbers.items() if one is not None}, **own}
    if is_selected:
        found["select"] = select.model_copy(update={"by": "goal"})
    return found

"""The check of `goal`: which goals the other settings of an experiment allow."""

from __future__ import annotations

from syno.base.errors import SpecError, SynoError
from syno.config.stages import SelectSettings, TuneSettings
from syno.measure.compilers import compiler_facts
from syno.measure.tvm.settings import is_here
from syno.search.goal import Goal
from syno.search.goal_reward import GoalReward


def check_goal(goal: Goal | None, reward: str, select: SelectSettings, tune: TuneSettings, *, searches: bool) -> None:
    """Raise SpecError if the other settings of an experiment do not allow its goal, or need one.

    Args:
        goal: the goal; None if there is none.
        reward: name of the reward.
        select, tune: settings of these stages.
        searches: whether the experiment has a search.
    """
    for option, needs_it in (("reward: goal", reward == GoalReward.name), ("select: by: goal", select.by == "goal")):
        if goal is None and needs_it:
            raise SpecError(f"{option} needs a goal: give one, as in goal: {{speedup: 1.5, lose_at_most: 0.01}}")
    if goal is None:
        return
    if not searches:
        raise SpecError("goal: it is the goal of a search, and this experiment has none; leave out select: operators or source")
    if not goal.measures:
        return
    try:
        compiler = compiler_facts(goal.compiler)
    except SynoError as error:
        raise SpecError(f"goal: compiler: {error}") from None
    try:
        tune.device(goal.device, goal.compiler)
        if is_here(goal.device):
            compiler.check_gpu(goal.device)
    except SynoError as error:
        raise SpecError(f"goal: device: {error}") from None
    if is_here(goal.device) and not compiler.compiles_for(goal.device):
        raise SpecError(f'goal: the compiler "{goal.compiler}" does not compile for {goal.device}; give another compiler')

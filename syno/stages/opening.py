"""The study of an experiment, opened with its settings and with the results of rivals that are known before the first trial."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, variance
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError, SynoError
from syno.base.identity import identity_of_paths
from syno.config import AnyExperiment, Experiment
from syno.config.kept_file import KEPT
from syno.config.stages import rounds_of
from syno.ir.graph import PGraph
from syno.ir.rewriting import with_variables
from syno.ir.text import parse_stored
from syno.model.replacements import as_replacement
from syno.run.metric import front
from syno.search.reward import FrontPoint, Reward, compared_scores, from_settings
from syno.space.space import Space
from syno.stages.places import FROZEN, SELECTED
from syno.stages.provenance import check_placed, differences_of_searches, read_known, write_kept
from syno.stages.rivals import TrainedRival, trained_rivals
from syno.train.metric import Metric

if TYPE_CHECKING:
    from syno.search.policies import LayerError
    from syno.search.study import KnownResult, Study


def open_study(experiment: Experiment, space: Space, layer_error: LayerError | None = None) -> Study:
    """Return the study, created if it does not exist. `layer_error` computes fit errors for its policy: see `Policy`.

    Raises SpecError if it exists with other settings, or if it begins with rivals and lacks one of their records.
    """
    from optuna import logging  # slow to import

    from syno.search.settings import WORKLOAD
    from syno.search.study import Study

    logging.set_verbosity(logging.WARNING)
    settings, spec, workload = experiment.study, experiment.operator_spec, experiment.workload
    is_timed = experiment.goal is not None and experiment.goal.measures
    more_settings = {
        "spec": spec.model_dump(mode="json", exclude={"name"}),
        **({} if workload is None else {WORKLOAD: workload.model_dump(mode="json")}),
        **own_code_of_search(experiment),
        **({"timing": experiment.tune.latency.model_dump(mode="json")} if is_timed else {}),
    }
    reward, known = _beside_rivals(experiment, space)
    return Study(
        space,
        space_id=spec.id,
        more_settings=more_settings,
        name=experiment.name,
        storage=experiment.storage,
        policy=str(experiment.policy.get("name", "mcts")),
        policy_settings=experiment.policy_settings,
        seed=settings.seed,
        reward=reward,
        warm_start=[] if experiment.warm_start == "known" else [choice.find() for choice in experiment.warm_start],
        known=known,
        stopping=settings.stopping,
        rounds=rounds_of(workload, experiment.evaluation),
        goal=experiment.goal,
        layer_error=layer_error,
        most_attempts=settings.most_attempts,
        heartbeat_seconds=settings.heartbeat_seconds,
        grace_seconds=settings.grace_seconds,
    )


def keep_config(experiment: AnyExperiment) -> Path:
    """Write the experiment with all defaults beside its results; returns the file.

    Raises SpecError, and does not change the file, if the results are of another experiment, or the study has trials with other
    settings.
    """
    check_goes_on(experiment)
    return write_kept(experiment)


def check_goes_on(experiment: AnyExperiment) -> None:
    """Raise SpecError, with the settings that differ, if the experiment cannot continue with the results in its folder."""
    check_placed(experiment)
    folder, kept = experiment.folder, read_known(experiment.folder / KEPT)
    if kept is None:
        if folder.is_dir() and isinstance(experiment, Experiment) and experiment.searches and _has_trials(experiment):
            open_study(experiment, Space(experiment.operator_spec))  # raises if the study has other settings
        return
    if kept.name != experiment.name:
        if any((folder / part).exists() for part in (FROZEN, SELECTED, "train")):
            raise SpecError(
                f'{folder} holds results of the experiment "{kept.name}", as {folder / KEPT} says; give "{experiment.name}" '
                "another folder (output: FOLDER, or leave output out)"
            )
        return
    differences = differences_of_searches(kept, experiment)
    if differences and _has_trials(experiment):
        raise SpecError(
            f"{folder} holds trials of other settings, as {folder / KEPT} says: {'; '.join(differences)}. Take these settings "
            "back to go on with that study, or give the experiment another name to begin a new one"
        )


def _has_trials(experiment: AnyExperiment) -> bool:
    """Return whether the study has a trial that was evaluated."""
    from syno.search.storage.store import read_trials

    try:
        trials = read_trials(experiment.storage, experiment.name)
    except SpecError:  # there is no study, or `open_study` says what is wrong
        return False
    return any(trial.state.name in ("COMPLETE", "PRUNED") for trial in trials)


def own_code_of_search(experiment: Experiment) -> dict[str, Any]:
    """Return checksums of the user's own code, network and data, as settings of a study; {} if all are built in."""
    from syno.search.settings import OWN_CODE, OWN_NETWORK

    code = identity_of_paths(json.loads(experiment.part("search")))
    network = None if experiment.workload is None else experiment.network.identity
    found = {OWN_CODE: code, OWN_NETWORK: network}
    return {name: one.stored for name, one in found.items() if one is not None}


# What is known of the rivals before the first trial: their front, which the reward `gain` compares with, and the results of
# known operators, which the policy is told (`warm_start: known`). The study keeps both, whatever becomes of the records.


def _beside_rivals(experiment: Experiment, space: Space) -> tuple[Reward, list[KnownResult] | None]:
    """Return the reward, and the rivals' known results for the study; None if the search does not begin with rivals.

    Raises SpecError if the record of a rival is missing.
    """
    from syno.search.settings import KNOWN, REWARD
    from syno.search.storage.store import read_settings
    from syno.search.study import KnownResult

    reward, asks_for_known = experiment.make_reward(), experiment.warm_start == "known"
    if not experiment.begins_with_rivals:
        return reward, None
    stored = read_settings(experiment.storage, experiment.name)
    if _begins_alike(stored, experiment):
        kept, of_rivals = stored[REWARD], {}
        known = [KnownResult(parse_stored(one["operator"]), one["metrics"]) for one in stored.get(KNOWN, [])]
        if experiment.needs_front:
            of_rivals = {"front": kept["front"], "deviation": kept["deviation"]}
    else:
        rivals, of_rivals = trained_rivals(experiment), {}
        known = _known_results(experiment, space, rivals) if asks_for_known else []
        if experiment.needs_front:
            points, deviation = front_of(rivals, experiment.network.metric)
            of_rivals = {"front": [point.model_dump() for point in points], "deviation": deviation}
            if not points:
                text = f'study "{experiment.name}": no rival was timed and trained, so the reward is that of `goal`'
                warnings.warn(text, stacklevel=3)
    return from_settings({**reward.settings(), **of_rivals}), known if asks_for_known else None


def _begins_alike(stored: Mapping[str, Any], experiment: Experiment) -> bool:
    """Return whether a study with these settings begins with rivals of the experiment's training, goal, and kind of reward."""
    from syno.search.settings import GOAL, KNOWN, REWARD, WORKLOAD

    if not stored or experiment.workload is None or experiment.goal is None:
        return False
    of_goal = experiment.goal.model_dump(mode="json", exclude={"most_screened"}, exclude_none=True)
    given = (
        experiment.workload.model_dump(mode="json"),
        of_goal,
        experiment.reward.get("name"),
        experiment.warm_start == "known",
    )
    is_alike = (stored.get(WORKLOAD), stored.get(GOAL), stored[REWARD]["name"], KNOWN in stored) == given
    return is_alike and all(stored.get(name) == one for name, one in own_code_of_search(experiment).items())


def front_of(rivals: Sequence[TrainedRival], metric: Metric) -> tuple[list[FrontPoint], float]:
    """Return the front of the original and its rivals, the slowest first, and the standard deviation of one training.

    All networks of the front are taken to vary alike with the seed, since each has too few seeds to tell. No front is returned
    if no rival is left.
    """
    ahead = front([(-one.speedup.value, metric.quality(mean(one.scores))) for one in rivals])
    by_speed = {rivals[place].speedup.value: rivals[place] for place in reversed(ahead)}  # equal networks are one point
    if len(rivals) < 2:
        return [], 0.0
    freedom = sum(len(one.scores) - 1 for one in by_speed.values())
    squares = sum((len(one.scores) - 1) * variance(one.scores) for one in by_speed.values() if len(one.scores) > 1)
    deviation = sqrt(squares / freedom) if freedom else 0.0
    points = [
        FrontPoint(name=one.name, speedup=speedup, score=mean(one.scores), deviation=deviation / sqrt(len(one.scores)))
        for speedup, one in by_speed.items()
    ]
    return points, deviation


def _known_results(experiment: Experiment, space: Space, rivals: Sequence[TrainedRival]) -> list[KnownResult]:
    """Return the results of those known operators among the rivals that are in the space."""
    from syno.search.study import KnownResult

    network, (original, *_) = experiment.network, rivals
    compared = compared_scores(network.metric.key, mean(original.scores), network.chance)
    found: dict[str, KnownResult] = {}
    for one in rivals:
        if one.name not in experiment.rival_operators:
            continue
        operator = _in_space(experiment, space, one.name)
        if operator is not None:
            speed = {"speedup": one.speedup.value, "speedup_low": one.speedup.low, "speedup_high": one.speedup.high}
            result = KnownResult(operator, {network.metric.key: mean(one.scores), **compared, **speed})
            found.setdefault(space.fingerprint(operator), result)
    return list(found.values())


def _in_space(experiment: Experiment, space: Space, rival: str) -> PGraph | None:
    """Return a rival's operator in the variables of the space; None if the space lacks it, or it differs between layers."""
    replacement = as_replacement(experiment.rival_operators[rival].replacement())
    of_layers = [replacement.operator_in(layer) for layer in experiment.network.layers]
    given = of_layers[0]
    if given is None or len({None if one is None else (one.id, *one.defaults.items()) for one in of_layers}) > 1:
        return None
    values = space.spec.table.defaults
    names = {
        name: name if values.get(name) == value else next((other for other in values if values[other] == value), "")
        for name, value in given.variables.defaults.items()
    }
    if "" in names.values():  # the search has no variable of this value
        return None
    try:
        operator = with_variables(given, {old: new for old, new in names.items() if old != new})
        space.path(operator)
    except SynoError:
        return None
    return operator

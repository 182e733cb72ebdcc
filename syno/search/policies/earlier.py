"""Trials of earlier studies, from which a policy with a surrogate model learns before its own first trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from syno.base.errors import SpecError, SynoError
from syno.base.files import checksum
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.search.policies.contract import Candidate


class Evaluated(NamedTuple):
    """An operator with a trial, as training data of the surrogate.

    Attributes:
        place: the operator's fingerprint or id, by which a random sample is ordered.
        reward: the trial's reward, 0 after a failure; None if the operator was not trained to its end.
        values: (step, value) pairs at the rungs of early stopping; empty if it passed none.
        candidate: the operator in the tree; None for an operator of an earlier study.
        row: the operator's features, if computed; see `Descriptions`.
        metrics: measured metrics by name.
        is_screened: whether the operator was screened out and not trained.
    """

    place: str
    reward: float | None = None
    values: tuple[tuple[float, float], ...] = ()
    candidate: Candidate | None = None
    row: tuple[float, ...] | None = None
    metrics: Mapping[str, float] = MappingProxyType({})
    is_screened: bool = False

    @property
    def is_informed(self) -> bool:
        """Whether the operator's reward or an intermediate value is known."""
        return self.reward is not None or bool(self.values)


def rewards(evaluated: Sequence[Evaluated]) -> list[float]:
    """Return the rewards of informed operators, estimated for those that were not trained to their end.

    The estimate is based on the rank of an operator's last value among all values at the same step. It is an isotonic
    regression of the rewards on this rank; below the lowest rank with a reward, it falls in proportion to the rank.
    """
    estimated = [trial.reward or 0.0 for trial in evaluated]
    open_ = [number for number, trial in enumerate(evaluated) if trial.reward is None]
    for step in sorted({evaluated[number].values[-1][0] for number in open_}):
        values = {number: dict(trial.values)[step] for number, trial in enumerate(evaluated) if step in dict(trial.values)}
        here = [number for number in open_ if evaluated[number].values[-1][0] == step]
        ended = [number for number in values if evaluated[number].reward is not None]
        places = np.unique(list(values.values()), return_inverse=True)[1]
        rank = {number: float(place) for number, place in zip(values, places, strict=True)}
        for number, estimate in zip(here, _estimates(rank, here, ended, estimated), strict=True):
            estimated[number] = estimate
    return estimated


def _estimates(rank: dict[int, float], here: Sequence[int], ended: Sequence[int], known: Sequence[float]) -> list[float]:
    """Return estimated rewards of the operators `here`, from ranks and from the rewards `known` of the operators that ended."""
    ranks = np.array([rank[number] for number in here])
    if not ended:
        return [float(estimate) for estimate in (ranks + 1) / (len(rank) + 1)]
    from scipy.optimize import isotonic_regression

    ordered = sorted(ended, key=lambda number: (rank[number], number))
    lowest = rank[ordered[0]]
    fitted = isotonic_regression([known[number] for number in ordered]).x
    within = np.interp(ranks, [rank[number] for number in ordered], fitted)
    return [float(estimate) for estimate in np.where(ranks < lowest, fitted[0] * (ranks + 1) / (lowest + 1), within)]


TRIALS = "trials.parquet"  # in the folder of an experiment's results
COLUMNS = ("operator", "outcome", "reward")


class EarlierTrial(NamedTuple):
    """An operator of an earlier study with its reward, 0 if it failed."""

    operator: PGraph
    reward: float


def trials_file(source: str) -> Path:
    """Return the trials table that a setting names: the file itself, or the table in an experiment's folder of results."""
    place = Path(source)
    return place / TRIALS if place.is_dir() else place


def content(place: str) -> str:
    """Return the checksum of a trials table; "" if there is none."""
    file = trials_file(place)
    return checksum(file.read_bytes()) if file.is_file() else ""


def read_earlier(place: str) -> list[EarlierTrial]:
    """Return the evaluated operators of an earlier study, in the order of its table.

    Raises SpecError if there is no such table, or if it holds no evaluated operator.
    """
    import pandas  # half a second

    file = trials_file(place)
    if not file.is_file():
        raise SpecError(
            f'policy: learn_from names "{place}", which has no {TRIALS}; give the folder of a finished search, such as '
            "results/quickstart"
        )
    try:
        frame = pandas.read_parquet(file)
    except (OSError, ValueError) as error:
        raise SpecError(f"policy: {file} of learn_from cannot be read: {' '.join(str(error).split())}") from None
    if lacking := [name for name in COLUMNS if name not in frame]:
        raise SpecError(f'policy: {file} of learn_from is no table of trials: it has no column "{lacking[0]}"')
    trials = list(_evaluated(zip(*(frame[name] for name in COLUMNS), strict=True), file))
    if not trials:
        raise SpecError(f"policy: {file} of learn_from holds no evaluated operator; leave it out")
    return trials


def _evaluated(rows: Iterator[tuple[str, str, float]], file: Path) -> Iterator[EarlierTrial]:
    for text, outcome, stored_reward in rows:
        reward = 0.0 if outcome == "failed" else stored_reward
        if reward is None or math.isnan(reward) or outcome not in ("complete", "pruned", "failed"):
            continue
        try:
            yield EarlierTrial(parse_stored(text), float(reward))
        except SynoError as error:
            raise SpecError(f"policy: {file} of learn_from holds an operator that cannot be read: {error}") from None

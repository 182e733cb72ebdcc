"""Trials of earlier studies, from which a policy with a model learns before its own first trial."""

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
    """An operator whose trial has begun.

    Attributes:
        place: its fingerprint or id, which gives its place in the order of a random sample.
        reward: 0 after a failure; None if it was not trained to its end.
        values: by the steps after which it was compared with others; empty if that was never.
        candidate: the operator in the tree; None in an earlier study.
        row: its numbers, if they are known; see `Descriptions`.
        metrics: what was measured.
        is_screened: whether it was not trained, as it cannot meet the goal.
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
        """Whether anything is known of how good it is."""
        return self.reward is not None or bool(self.values)


def rewards(evaluated: Sequence[Evaluated]) -> list[float]:
    """Return the rewards of operators of which something is known, with estimates for those that were not trained to their end.

    An estimate follows from the last value of an operator, by its rank among the values of all after the same step. Above the
    worst of those with a reward, it is what these have, on average, where values and rewards rise together (an isotonic
    regression); below, it falls in proportion to the rank, as nothing better is known.
    """
    found = [one.reward or 0.0 for one in evaluated]
    open_ = [number for number, one in enumerate(evaluated) if one.reward is None]
    for step in sorted({evaluated[number].values[-1][0] for number in open_}):
        values = {number: dict(one.values)[step] for number, one in enumerate(evaluated) if step in dict(one.values)}
        here = [number for number in open_ if evaluated[number].values[-1][0] == step]
        ended = [number for number in values if evaluated[number].reward is not None]
        places = np.unique(list(values.values()), return_inverse=True)[1]
        rank = {number: float(place) for number, place in zip(values, places, strict=True)}
        for number, estimate in zip(here, _estimates(rank, here, ended, found), strict=True):
            found[number] = estimate
    return found


def _estimates(rank: dict[int, float], here: Sequence[int], ended: Sequence[int], known: Sequence[float]) -> list[float]:
    """Return estimated rewards of the operators `here`, by their ranks among ended trials and the rewards of these."""
    ranks = np.array([rank[number] for number in here])
    if not ended:
        return [float(one) for one in (ranks + 1) / (len(rank) + 1)]
    from scipy.optimize import isotonic_regression

    ordered = sorted(ended, key=lambda number: (rank[number], number))
    lowest = rank[ordered[0]]
    fitted = isotonic_regression([known[number] for number in ordered]).x
    within = np.interp(ranks, [rank[number] for number in ordered], fitted)
    return [float(one) for one in np.where(ranks < lowest, fitted[0] * (ranks + 1) / (lowest + 1), within)]


TRIALS = "trials.parquet"  # in the folder of an experiment's results
COLUMNS = ("operator", "outcome", "reward")


class EarlierTrial(NamedTuple):
    """An operator of an earlier study, and its reward: 0 if it failed."""

    operator: PGraph
    reward: float


def trials_file(source: str) -> Path:
    """Return the table of trials that a setting names: the folder of an experiment's results, or the table itself."""
    place = Path(source)
    return place / TRIALS if place.is_dir() else place


def content(place: str) -> str:
    """Return the checksum of a table of trials; "" if there is none."""
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
    found = list(_evaluated(zip(*(frame[name] for name in COLUMNS), strict=True), file))
    if not found:
        raise SpecError(f"policy: {file} of learn_from holds no evaluated operator; leave it out")
    return found


def _evaluated(rows: Iterator[tuple[str, str, float]], file: Path) -> Iterator[EarlierTrial]:
    for text, outcome, given in rows:
        reward = 0.0 if outcome == "failed" else given
        if reward is None or math.isnan(reward) or outcome not in ("complete", "pruned", "failed"):
            continue
        try:
            yield EarlierTrial(parse_stored(text), float(reward))
        except SynoError as error:
            raise SpecError(f"policy: {file} of learn_from holds an operator that cannot be read: {error}") from None

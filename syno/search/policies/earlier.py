"""Trials of earlier studies, from which a policy with a model learns before its own first trial."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from syno.base.errors import SpecError, SynoError
from syno.base.files import checksum
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored

TRIALS = "trials.parquet"  # in the folder of an experiment's results
COLUMNS = ("operator", "outcome", "reward")


class EarlierTrial(NamedTuple):
    """An operator of an earlier study, and its reward: 0 if it failed."""

    operator: PGraph
    reward: float


def trials_file(given: str) -> Path:
    """Return the table of trials that a setting names: the folder of an experiment's results, or the table itself."""
    place = Path(given)
    return place / TRIALS if place.is_dir() else place


def content(given: str) -> str:
    """Return the checksum of a table of trials; "" if there is none."""
    file = trials_file(given)
    return checksum(file.read_bytes()) if file.is_file() else ""


def read_earlier(given: str) -> list[EarlierTrial]:
    """Return the evaluated operators of an earlier study, in the order of its table.

    Raises SpecError if there is no such table, or if it holds no evaluated operator.
    """
    import pandas  # half a second

    file = trials_file(given)
    if not file.is_file():
        raise SpecError(
            f'policy: learn_from names "{given}", which has no {TRIALS}; give the folder of a finished search, such as '
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

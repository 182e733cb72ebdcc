"""The operators of a shortlist that are the fastest, or on the front of score and latency, for each compiler on each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from syno.base.errors import NoneSelectedError, SpecError
from syno.base.files import ORIGINAL
from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.model.networks import Network, Role
from syno.run.metric import front
from syno.stages.measurements import KINDS
from syno.stages.provenance import check
from syno.stages.selection import FastestOn

if TYPE_CHECKING:
    from pathlib import Path

MOST_NAMED = 3  # measurements in one message
Pair = tuple[str, str]  # compiler, device


class Measured(NamedTuple):
    """The comparable latencies for one pair of compiler and device, in milliseconds: by operator key, and the original's."""

    pair: Pair
    latencies: Mapping[str, float]
    original: float | None

    @property
    def fastest(self) -> str:
        """The key of the fastest operator; the first operator among equals."""
        return min(self.latencies, key=self.latencies.__getitem__)


def fastest(experiment: Experiment, names: Mapping[str, str]) -> dict[str, tuple[FastestOn, ...]]:
    """Return the operators that are the fastest for a pair of compiler and device, by key, with these pairs.

    Among equal latencies, the operator that comes first on the shortlist wins. If more operators than `count` are the fastest
    for some pair, those that win the most pairs are kept, and among equals those that win earlier pairs.

    Args:
        experiment: the experiment.
        names: names of the operators of the shortlist, by key, the best first.

    Raises errors as `measured` does.
    """
    found = measured(experiment, names)
    often = Counter(one.fastest for one in found)  # `most_common` keeps the order of equal counts
    return {key: _places(key, found) for key, _ in often.most_common(experiment.select.count)}


def ahead(experiment: Experiment, names: Mapping[str, str], qualities: Mapping[str, float]) -> dict[str, tuple[FastestOn, ...]]:
    """Return the operators that are, for some compiler and device, on the front of quality and latency.

    They are returned by key, with the pairs (compiler, device) for which each is the fastest.

    If there are more than `count`, those on the fronts of the most pairs are kept; among equals, those of earlier pairs, then
    the faster operators.

    Args:
        experiment: the experiment.
        names: names of the operators of the shortlist, by key, the best first.
        qualities: numbers that are higher for better operators, by key.

    Raises errors as `measured` does.
    """
    found, often = measured(experiment, names), Counter[str]()
    for one in found:
        keys = list(one.latencies)
        often.update(keys[place] for place in front([(one.latencies[key], qualities[key]) for key in keys]))
    return {key: _places(key, found) for key, _ in often.most_common(experiment.select.count)}


def measured(experiment: Experiment, names: Mapping[str, str]) -> list[Measured]:
    """Return the latencies of the shortlist for each pair of compiler and device that has any.

    Left out are measurements that failed, of networks that are not tuned completely, and faster than the device's peak
    allows.

    Args:
        experiment: the experiment.
        names: names of the operators of the shortlist, by key, the best first.

    Raises SpecError if a record is missing, damaged, or of another network or other settings; NoneSelectedError if no
    operator was measured for any pair.
    """
    found: list[Measured] = []
    problems: list[str] = []
    for pair in experiment.tune.pairs:
        latencies: dict[str, float] = {}
        for key, name in names.items():
            record = _record(experiment, key, pair)
            if (problem := _problem(record)) is None and record.latency_ms is not None:
                latencies[key] = record.latency_ms
            else:
                problems.append(f"{name} with {pair[0]} on {pair[1]}: {problem}")
        if latencies:
            original = _record(experiment, ORIGINAL, pair)
            found.append(Measured(pair, latencies, original.latency_ms if _problem(original) is None else None))
    if not found:
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise NoneSelectedError(
            f"no operator of the shortlist has a latency that compares: {'; '.join(problems[:MOST_NAMED])}{more}; delete the "
            "records of these measurements to repeat them, or select by pareto or reward"
        )
    return found


def _places(key: str, found: list[Measured]) -> tuple[FastestOn, ...]:
    """Return the pairs of compiler and device for which an operator is the fastest, with its latency and speedup there."""
    return tuple(
        FastestOn(
            compiler=one.pair[0],
            device=one.pair[1],
            latency_ms=one.latencies[key],
            speedup=None if one.original is None else one.original / one.latencies[key],
        )
        for one in found
        if one.fastest == key
    )


def _record(experiment: Experiment, key: str, pair: Pair) -> TuningRecord:
    """Return the record of a measurement. Raises SpecError if there is none, or it is of another network or other settings."""
    file = KINDS["tune"].file(experiment, key, *pair)
    again = f"syno tune model CONFIG {key} --compiler {pair[0]} --device {pair[1]}"
    if not file.is_file():
        raise SpecError(
            f"{file} is not there, and select: by: {experiment.select.by} compares measurements; `{again}` makes it"
        )
    record = TuningRecord.read(file)
    check(file, record, experiment, Network(key, role=Role.ORIGINAL if key == ORIGINAL else Role.FOUND), again)
    return record


def _problem(record: TuningRecord) -> str | None:
    """Return why a measurement is not comparable with others (failed, partly tuned, implausible); None if it is."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    return "faster than the device's own peak allows" if record.suspicious else None


def compared_measurements(experiment: Experiment, keys: list[str]) -> list[Path]:
    """Return the files of the measurements that a selection by latency or front compares.

    Args:
        experiment: the experiment.
        keys: keys of the operators of the shortlist.
    """
    return [KINDS["tune"].file(experiment, key, *pair) for pair in experiment.tune.pairs for key in (ORIGINAL, *keys)]

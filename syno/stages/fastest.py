"""The fastest operators of a shortlist: one for each compiler on each device, by the records of their measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from syno.base.errors import NoneSelectedError, SpecError
from syno.base.files import ORIGINAL
from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.stages.measurements import KINDS
from syno.stages.operators import ComparedNetwork
from syno.stages.own_records import check_belongs, check_measurement
from syno.stages.selection import FastestOn

if TYPE_CHECKING:
    from pathlib import Path

MOST_NAMED = 3  # measurements in one message
Pair = tuple[str, str]  # compiler, device


def fastest(experiment: Experiment, names: Mapping[str, str]) -> dict[str, tuple[FastestOn, ...]]:
    """Return the fastest operator for each pair of compiler and device, by key, with the pairs.

    Only measurements that compare count: none that failed, is of a network that is not tuned completely, or is faster than the
    device's peak allows. Of equal latencies, that of the operator that comes first on the shortlist wins. If there are
    more operators than `count`, those that are the fastest for most pairs are taken, and of these, those of earlier pairs.

    Args:
        experiment: the experiment.
        names: names of the operators of the shortlist, by key, the best first.

    Raises SpecError if a record is missing, damaged or of something else; NoneSelectedError if no operator was measured for any
    pair.
    """
    found: dict[str, list[FastestOn]] = {}
    problems: list[str] = []
    for compiler, device in experiment.tune.pairs:
        pair = (compiler, device)
        latencies: dict[str, float] = {}
        for key, name in names.items():
            record = _record(experiment, key, pair)
            if (problem := _problem(record)) is None and record.latency_ms is not None:
                latencies[key] = record.latency_ms
            else:
                problems.append(f"{name} with {compiler} on {device}: {problem}")
        if latencies:
            best = min(latencies, key=latencies.__getitem__)  # the first of equal ones
            original = _record(experiment, ORIGINAL, pair)
            theirs = original.latency_ms if _problem(original) is None else None
            speedup = None if theirs is None else theirs / latencies[best]
            place = FastestOn(compiler=compiler, device=device, latency_ms=latencies[best], speedup=speedup)
            found.setdefault(best, []).append(place)
    if not found:
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise NoneSelectedError(
            f"no operator of the shortlist has a latency that compares: {'; '.join(problems[:MOST_NAMED])}{more}; delete the "
            "records of these measurements to repeat them, or select by pareto or reward"
        )
    often = Counter({key: len(places) for key, places in found.items()})  # `most_common` keeps the order of equal counts
    return {key: tuple(found[key]) for key, _ in often.most_common(experiment.select.count)}


def _record(experiment: Experiment, key: str, pair: Pair) -> TuningRecord:
    """Return the record of a measurement. Raises SpecError if there is none, or it is of another network or other settings."""
    file = KINDS["tune"].file(experiment, key, *pair)
    again = f"syno tune model CONFIG {key} --compiler {pair[0]} --device {pair[1]}"
    if not file.is_file():
        raise SpecError(f"{file} is not there, and select: by: latency compares measurements; `{again}` makes it")
    record = TuningRecord.read(file)
    check_belongs(record, ComparedNetwork(key, ORIGINAL if key == ORIGINAL else "found"), file)
    check_measurement(file, record, experiment, again)
    return record


def _problem(record: TuningRecord) -> str | None:
    """Return why a measurement does not compare with others; None if it does."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    return "faster than the device's own peak allows" if record.suspicious else None


def compared_measurements(experiment: Experiment, keys: list[str]) -> list[Path]:
    """Return the files of the measurements that a selection by latency compares.

    Args:
        experiment: the experiment.
        keys: keys of the operators of the shortlist.
    """
    return [KINDS["tune"].file(experiment, key, *pair) for pair in experiment.tune.pairs for key in (ORIGINAL, *keys)]

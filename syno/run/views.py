"""The scores and latencies of an experiment's networks, computed from its measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import nan
from statistics import mean

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.measure.tuning_record import SUSPICIOUS
from syno.run.measurement import OK, Measurement
from syno.run.metric import difference, spread
from syno.run.values import Latency, Score
from syno.train.metric import METRICS

KINDS_OF_DEVICES = ("cpu", "cuda")  # what stands in the column `device` where a device has no name of its own
ITSELF = Interval(0.0)


def scores_of(measured: Iterable[Measurement]) -> list[Score]:
    """Return the score of each network that was trained, the best first.

    It is the mean over seeds; a training that diverged has an infinite loss. The difference is from the original's score, with
    its 95 % interval. Costs are of one sample, and as shares of the original's.
    """
    groups: dict[str, list[Measurement]] = {}
    for one in measured:
        if one.role is not None and one.seed is not None and one.layer is None and one.key is not None:
            groups.setdefault(one.key, []).append(one)
    original = groups.get(ORIGINAL)
    scores = [_score(rows, original) for rows in groups.values()]
    return sorted(scores, key=lambda one: -METRICS[scores[0].metric].quality(one.score or 0.0))


def _score(rows: Sequence[Measurement], original: Sequence[Measurement] | None) -> Score:
    first, scores = rows[0], _by_seed(rows)
    apart = Interval(nan) if original is None else ITSELF if rows is original else difference(scores, _by_seed(original))
    (flops, flops_share), (parameters, parameters_share) = (_cost(rows, original, name) for name in ("flops", "parameters"))
    metric = next(one.metric for one in rows if one.metric in METRICS)
    return Score(
        first.operator, first.role or "", first.key or "", metric, mean(scores), spread(scores), len(scores), apart,
        flops, flops_share, parameters, parameters_share, operator_id=first.operator_id,
    )  # fmt: skip


def _by_seed(rows: Sequence[Measurement]) -> list[float]:
    """Return the score of each seed; `Metric.of_broken` if a score is missing, since that training diverged."""
    known = [(METRICS[one.metric], one.value) for one in rows if one.metric in METRICS]
    return [metric.of_broken if value is None else value for metric, value in known]


def _cost(rows: Sequence[Measurement], original: Sequence[Measurement] | None, name: str) -> tuple[float, float | None]:
    """Return a cost of a network (FLOPs or parameters), from its first seed, and its share of the original's cost."""
    own, *theirs = (
        next(one.value for one in group if one.metric == name and one.value is not None)
        for group in (rows, *([] if original is None else [original]))
    )
    return own, own / theirs[0] if theirs else None


def latencies_of(measured: Iterable[Measurement]) -> list[Latency]:
    """Return the latencies of whole networks.

    Speedups are over the original with the same compiler and device, for measurements with the status "ok" only.
    """
    rows = [one for one in measured if one.layer is None]
    return _latencies(rows, lambda one: (one.device_setting, one.compiler))


def layers_of(measured: Iterable[Measurement]) -> list[Latency]:
    """Return the latencies of single layers; speedups are over the same layer of the original, as in `latencies_of`."""
    rows = [one for one in measured if one.layer is not None]
    return _latencies(rows, lambda one: (one.device_setting, one.compiler, one.layer))


def _latencies(rows: Sequence[Measurement], place: Callable[[Measurement], tuple[str | None, ...]]) -> list[Latency]:
    timed = [one for one in rows if one.metric == "latency" and one.role is not None and one.device_setting is not None]
    limits = {(one.key, *place(one)): one.value for one in rows if one.metric == "limit"}
    originals = {place(one): one.value for one in timed if one.key == ORIGINAL and one.status == OK}
    return [_latency(one, originals.get(place(one)), limits.get((one.key, *place(one)))) for one in timed]


def _latency(one: Measurement, original: float | None, limit: float | None) -> Latency:
    is_ok, (value, low, high) = one.status == OK, (nan if end is None else end for end in (one.value, one.low, one.high))
    return Latency(
        one.operator, one.role or "", one.key or "", one.layer or "", one.device_setting or "",
        "" if one.device is None or one.device in KINDS_OF_DEVICES else one.device, one.compiler or "", one.status, one.reason,
        Interval(value, low, high), original / one.value if is_ok and original is not None and one.value is not None else None,
        one.batch, one.threads, one.checked, one.note == SUSPICIOUS,
        limit / one.value if is_ok and limit is not None and one.value else None, one.operator_id,
    )  # fmt: skip

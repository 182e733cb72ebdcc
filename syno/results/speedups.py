"""The speedup of each network over the original, with its 95 % interval: timed in turns, or by two latencies."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.measure.layers_record import LayersRecord, MeasuredLayer
from syno.measure.network_subject import NetworkSubject
from syno.results.breakdown import NETWORK
from syno.results.goal import NONE_FASTER, none_faster, times_as_fast
from syno.results.measurement import INT8_COMPILER, Measurement
from syno.results.rows import rows_of_tuning
from syno.results.table import SPEEDUP_COLUMNS
from syno.search.goal import Goal

if TYPE_CHECKING:
    import pandas


# The measurements in a record of a network's layers.


# The numbers that the paper gives the layers of its ResNet-34.
LAYERS = {
    "conv_io64": "L1",
    "conv_i64_o128": "L7",
    "conv_io128": "L8",
    "residual_i64_o128": "L9",
    "conv_i128_o256": "L16",
    "conv_io256": "L17",
    "residual_i128_o256": "L18",
    "conv_i256_o512": "L29",
    "conv_io512": "L30",
    "residual_i256_o512": "L31",
}
LAYERED = "resnet34"
IMAGE = (224, 224)  # height and width of the pictures for which the paper's layers are named


def rows_of_layers(record: LayersRecord, source: str, **place: Any) -> Iterator[Measurement]:
    """Yield the latency of each layer, and what it costs. Arguments are those of `rows_of_tuning`."""
    for layer in record.layers:
        yield from rows_of_tuning(layer.record, source, **place, layer=layer_name(layer))


def layer_name(layer: MeasuredLayer) -> str:
    """Return the layer's name in tables: the paper's name for layers of its ResNet-34, else the name in the network."""
    subject = layer.record.subject
    if isinstance(subject, NetworkSubject):
        is_the_papers = (subject.model, subject.width, subject.image_shape[1:]) == (LAYERED, 1.0, IMAGE)
        if is_the_papers and layer.name in LAYERS:
            return layer.name
    return str(getattr(subject, "layer", None) or layer.name)


# How original and candidate were timed: in turns, after the selection or in the search; in turns by layers; or apart.
IN_TURNS, IN_SEARCH, BY_LAYERS, APART = "in turns", "in turns, in the search", "in turns, by layers", "apart"
EAGER = "eager"


def speedup_apart(latency: pandas.DataFrame, key: str, compiler: str, device: str) -> Interval | None:
    """Return the speedup by two latencies that were measured one after the other; None if one of them is not known.

    The ends of its interval are the ratios of the opposite ends of both intervals.

    Args:
        latency: `syno.results.table.latency_view`.
        key: of the network with the operator.
        compiler, device: where both were measured, as the settings name them.
    """
    here = latency[(latency["compiler"] == compiler) & (latency["device"] == device) & (latency["status"] == "ok")]
    found = {row["key"]: row for row in here.to_dict("records")}
    if key not in found or ORIGINAL not in found:
        return None
    return _ratio(found[ORIGINAL], found[key])


def _ratio(original: Mapping[Any, Any], changed: Mapping[Any, Any]) -> Interval:
    """Return the ratio of two latencies; NaN where one is unknown, or none."""
    own, other = ([_positive(row[f"latency_{end}ms"]) for end in ("", "low_", "high_")] for row in (changed, original))
    return Interval(other[0] / own[0], other[1] / own[2], other[2] / own[1])


def _positive(latency: Any) -> float:
    known = nan if latency is None else float(latency)
    return known if known > 0 else nan


def speedup_by_layers(breakdown: pandas.DataFrame | None, key: str, compiler: str, device: str) -> Interval | None:
    """Return the speedup of a network whose layers were timed in turns with the original's; None if they were not.

    Args:
        breakdown: `syno.results.breakdown.breakdown_table`; None if there is none.
        key, compiler, device: as for `speedup_apart`.
    """
    if breakdown is None or breakdown.empty:
        return None
    found = breakdown[(breakdown["part"] == NETWORK) & (breakdown["key"] == key) & (breakdown["status"] == "ok")]
    found = found[(found["compiler"] == compiler) & (found["device"] == device)]
    return (
        None if found.empty else Interval(*(float(found.iloc[0][name]) for name in ("speedup", "speedup_low", "speedup_high")))
    )


def speedup_view(
    latency: pandas.DataFrame,
    goal: Goal | None = None,
    judged: pandas.DataFrame | None = None,
    breakdown: pandas.DataFrame | None = None,
) -> pandas.DataFrame:
    """Return a row of `SPEEDUP_COLUMNS` for each network but the original, compiler and device with a known speedup.

    For the goal's compiler and device it is the speedup that the verdict is about. Else it is the one that was timed in turns
    by layers, if there is one, and the ratio of two latencies if not.

    Args:
        latency: `syno.results.table.latency_view`.
        goal: the goal of the search, if there is one.
        judged: the verdicts (`syno.results.goal_tables.verdicts`), if there are any.
        breakdown: where the time goes (`syno.results.breakdown.breakdown_table`), if that was measured.
    """
    import pandas

    rows: dict[tuple[str, str, str], tuple[object, ...]] = {}
    for row in latency[(latency["key"] != ORIGINAL) & (latency["status"] == "ok")].to_dict("records"):
        place = (row["key"], row["compiler"], row["device"])
        in_turns, apart = speedup_by_layers(breakdown, *place), speedup_apart(latency, *place)
        if (span := in_turns or apart) is not None:
            how = (APART, row["suspicious"] is True) if in_turns is None else (BY_LAYERS, False)
            rows[place] = (*_named(row), row["device"], row["compiler"], *span, *how)
    if goal is not None and judged is not None:
        for row in judged[judged["timed"].notna()].to_dict("records"):
            place = (row["key"], goal.compiler, goal.device)
            doubtful = row["timed"] == APART and place in rows and rows[place][-1]
            span = Interval(row["speedup"], row["speedup_low"], row["speedup_high"])
            rows[place] = (*_named(row), goal.device, goal.compiler, *span, row["timed"], doubtful)
    return pandas.DataFrame(list(rows.values()), columns=list(SPEEDUP_COLUMNS))


# ---- whether anything is faster --------------------------------------------------------------------------------------


class BestAgainstBest(NamedTuple):
    """The fastest network with an operator against the original with the compiler that suits the original best, on one device.

    Attributes:
        device: where.
        compiler: the fastest compiler of the original there.
        slower: the compilers, other than eager, with which the original is certainly slower: speedups with these flatter.
        original_ms, slower_ms: the original's latency with `compiler`, and with the first of `slower`.
        operator, own_compiler: the network with the least latency, and its compiler.
        speedup: of this network over the original, by two latencies.
    """

    device: str
    compiler: str
    slower: tuple[str, ...]
    original_ms: float
    slower_ms: float
    operator: str
    own_compiler: str
    speedup: Interval

    @property
    def sentence(self) -> tuple[str, str, str]:
        """The comparison in a sentence: the operator's name between two texts."""
        none = "" if self.speedup.value > 1 else f"{NONE_FASTER}: "
        before = (
            f"On {self.device}, the original is faster with {self.compiler} ({self.original_ms:.4g} ms) than with "
            f"{' and '.join(self.slower)} ({self.slower_ms:.4g} ms). Best compiler against best compiler, {none}"
        )
        return before, self.operator, f" with {self.own_compiler} is {times_as_fast(self.speedup, ' times as fast')}."


def best_against_best(latency: pandas.DataFrame, names: Collection[str] | None = None) -> list[BestAgainstBest]:
    """Return the comparison for each device where a compiler that operators were measured with slows the original down.

    A speedup over an original that the compiler has slowed down says little: people would run the original without it.

    Args:
        latency: `syno.results.table.latency_view`.
        names: the operators to choose from; None for all that the search has found.
    """
    found: list[BestAgainstBest] = []
    rows = [row for row in latency.to_dict("records") if row["status"] == "ok" and row["suspicious"] is not True]
    rows = [row for row in rows if isfinite(_positive(row["latency_ms"]))]
    rows = [row for row in rows if not str(row["compiler"]).endswith(INT8_COMPILER)]  # another network
    for device in dict.fromkeys(str(row["device"]) for row in rows):
        here = [row for row in rows if str(row["device"]) == device]
        own = [row for row in here if row["role"] == "found" and (names is None or row["operator"] in names)]
        theirs = {str(row["compiler"]): row for row in here if row["role"] == ORIGINAL}
        if not own or not theirs:
            continue
        name, best = min(theirs.items(), key=lambda pair: pair[1]["latency_ms"])
        least = _positive(best["latency_high_ms"])
        lows = {other: _positive(row["latency_low_ms"]) for other, row in theirs.items() if other not in (EAGER, name)}
        slower = tuple(other for other in dict.fromkeys(str(row["compiler"]) for row in own) if lows.get(other, nan) > least)
        if slower:
            fastest = min(own, key=lambda row: row["latency_ms"])
            where = (device, name, slower, best["latency_ms"], theirs[slower[0]]["latency_ms"])
            found.append(BestAgainstBest(*where, fastest["operator"], str(fastest["compiler"]), _ratio(best, fastest)))
    return found


def none_is_faster(speedups: pandas.DataFrame) -> list[str]:
    """Return a sentence for each compiler and device with which none of the operators that were found is faster.

    Args:
        speedups: `speedup_view`.
    """
    lines = []
    known = speedups[(speedups["role"] == "found") & speedups["speedup"].notna()]
    for (device, compiler), rows in known.groupby(["device", "compiler"], sort=False):
        best = rows.sort_values("speedup", ascending=False, kind="stable").iloc[0]
        if not best["speedup"] > 1:
            span = Interval(*(float(best[name]) for name in ("speedup", "speedup_low", "speedup_high")))
            lines.append(none_faster(best["operator"], span, f"{compiler} on {device}"))
    return lines


def _named(row: dict[Hashable, object]) -> tuple[object, ...]:
    return row["operator"], row["key"], row["role"]

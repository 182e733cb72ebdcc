"""The speedup of each network over the original, with its 95 % interval: timed in turns, or by two latencies."""

from __future__ import annotations

from collections.abc import Hashable
from math import nan
from typing import TYPE_CHECKING

from syno.base.files import ORIGINAL
from syno.results.breakdown import NETWORK
from syno.results.goal import Span
from syno.search.goal import Goal

if TYPE_CHECKING:
    import pandas

# How original and candidate were timed: in turns, after the selection or in the search; in turns by layers; or apart.
IN_TURNS, IN_SEARCH, BY_LAYERS, APART = "in turns", "in turns, in the search", "in turns, by layers", "apart"
SPEEDUP_COLUMNS = (
    "operator", "key", "role", "device", "compiler", "speedup", "speedup_low", "speedup_high", "timed", "suspicious",
)  # fmt: skip


def speedup_apart(latency: pandas.DataFrame, key: str, compiler: str, device: str) -> Span | None:
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
    own, original = ([row[f"latency_{end}ms"] for end in ("", "low_", "high_")] for row in (found[key], found[ORIGINAL]))
    return Span(
        *(float(nan if one is None else one) for one in (original[0] / own[0], original[1] / own[2], original[2] / own[1]))
    )


def speedup_by_layers(breakdown: pandas.DataFrame | None, key: str, compiler: str, device: str) -> Span | None:
    """Return the speedup of a network whose layers were timed in turns with the original's; None if they were not.

    Args:
        breakdown: `syno.results.breakdown.breakdown_table`; None if there is none.
        key, compiler, device: as for `speedup_apart`.
    """
    if breakdown is None or breakdown.empty:
        return None
    found = breakdown[(breakdown["part"] == NETWORK) & (breakdown["key"] == key) & (breakdown["status"] == "ok")]
    found = found[(found["compiler"] == compiler) & (found["device"] == device)]
    return None if found.empty else Span(*(float(found.iloc[0][name]) for name in ("speedup", "speedup_low", "speedup_high")))


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
            span = Span(row["speedup"], row["speedup_low"], row["speedup_high"])
            rows[place] = (*_named(row), goal.device, goal.compiler, *span, row["timed"], doubtful)
    return pandas.DataFrame(list(rows.values()), columns=list(SPEEDUP_COLUMNS))


def _named(row: dict[Hashable, object]) -> tuple[object, ...]:
    return row["operator"], row["key"], row["role"]

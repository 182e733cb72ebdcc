"""The speedup of each network over the original, with its 95 % interval: timed in turns, or by two latencies."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from syno.base.files import ORIGINAL
from syno.results.goal import Span
from syno.search.goal import Goal

if TYPE_CHECKING:
    import pandas

IN_TURNS, APART = "in turns", "apart"  # how original and candidate were timed
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


def speedup_view(
    latency: pandas.DataFrame, goal: Goal | None = None, judged: pandas.DataFrame | None = None
) -> pandas.DataFrame:
    """Return a row of `SPEEDUP_COLUMNS` for each network but the original, compiler and device with a known speedup.

    Args:
        latency: `syno.results.table.latency_view`.
        goal: the goal of the search, if there is one.
        judged: the verdicts (`syno.results.goal_tables.verdicts`); a speedup there that was timed in turns, by the goal's
            compiler on its device, takes the place of the ratio of two latencies.
    """
    import pandas

    rows: dict[tuple[str, str, str], tuple[object, ...]] = {}
    for row in latency[(latency["key"] != ORIGINAL) & (latency["status"] == "ok")].to_dict("records"):
        place = (row["key"], row["device"], row["compiler"])
        span = speedup_apart(latency, row["key"], row["compiler"], row["device"])
        if span is not None:
            named = (row["operator"], row["key"], row["role"], row["device"], row["compiler"])
            rows[place] = (*named, *span, APART, row["suspicious"] is True)
    if goal is not None and judged is not None:
        for row in judged[judged["timed"] == IN_TURNS].to_dict("records"):
            named = (row["operator"], row["key"], row["role"], goal.device, goal.compiler)
            span = Span(row["speedup"], row["speedup_low"], row["speedup_high"])
            rows[row["key"], goal.device, goal.compiler] = (*named, *span, IN_TURNS, False)
    return pandas.DataFrame(list(rows.values()), columns=list(SPEEDUP_COLUMNS))

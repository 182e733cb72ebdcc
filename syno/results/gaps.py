"""The gaps of a table of measurements: what it lacks, so that figures leave it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syno.base.files import ORIGINAL
from syno.results.measurement import OK
from syno.results.metric import METRICS

if TYPE_CHECKING:
    import pandas

LONGEST_REASON = 160  # characters


def gaps(rows: pandas.DataFrame) -> list[str]:
    """Return what figures leave out, a line for each: failed measurements, and networks without latencies or speedups."""
    bad = rows[rows["status"] != OK]
    lines = [_failure(row) for row in bad.to_dict("records")]
    good = rows[(rows["status"] == OK) & rows["layer"].isna() & rows["model"].notna()]
    timed = good[good["metric"] == "latency"]
    known = set(timed["model"])
    scored = good[good["metric"].isin(list(METRICS)) & (good["operator"] != ORIGINAL)]
    lines += [f"{model}: no latency of the network" for model in dict.fromkeys(scored["model"]) if model not in known]
    for (_, model, compiler, device), group in timed.groupby(
        ["origin", "model", "compiler", "device"], sort=False, dropna=False
    ):
        if not (group["operator"] == ORIGINAL).any():
            lines.append(f"{model}, {compiler} on {device}: no latency of the original, so no speedup")
    return list(dict.fromkeys(lines))


def _failure(row: dict[Any, Any]) -> str:
    place = [str(row[name]) for name in ("model", "data", "layer") if isinstance(row[name], str)]
    if isinstance(row["compiler"], str):
        place.append(f"{row['compiler']} on {row['device']}")
    reason = " ".join(str(row["reason"]).split())
    shown = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."
    return f"{row['experiment']}: {row['metric']} of {row['operator']} in {', '.join(place)}: {row['status']}: {shown}"

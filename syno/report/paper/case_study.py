"""Figure 8: ResNet-18 as it is, in 8-bit integers, with two convolutions in a row, and with Operator 1."""

from __future__ import annotations

import pandas

from syno.artifact.paper import CASE_STUDY
from syno.artifact.places import CASE, DEVICES, INT8, STACKED
from syno.base.names import ORIGINAL
from syno.report.paper.speedups import ordered, timed

CANDIDATES = {  # and what the paper calls them
    ORIGINAL: "original",
    INT8: "INT8",
    STACKED: "stacked convolution",
    "operator_1": "Operator 1",
}
COMPILER = "tvm"


def case_study(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Columns: device, candidate, operator, latency_ms, original_ms, speedup, accuracy (on ImageNet, as the paper tells it)."""
    told = rows[(rows["source"] == CASE_STUDY) & (rows["metric"] == "accuracy")]
    scores = told[["operator", "value"]].rename(columns={"value": "accuracy"})
    times = timed(rows)
    times = times[(times["model"] == CASE) & (times["compiler"] == COMPILER) & times["operator"].isin(CANDIDATES)]
    both = times.merge(scores, on="operator", how="left").assign(candidate=lambda found: found["operator"].map(CANDIDATES))
    both = ordered(both, device=DEVICES, operator=CANDIDATES)
    return both[["device", "candidate", "operator", "latency_ms", "original_ms", "speedup", "accuracy"]]

"""Figure 9: layers of ResNet-34, with our operators and with those of NAS-PTE."""

from __future__ import annotations

import pandas

from syno.artifact.places import COMPILERS, DEVICES, LAYERED, LAYERS, NAS_PTE
from syno.base.names import ORIGINAL
from syno.report.paper.speedups import geometric_mean, ordered, timed

THEIRS, OURS = "NAS-PTE", "Syno"
KEYS = ["device", "compiler", "layer"]


def layers(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Every measured layer. Columns: device, compiler, layer, label (its number in the paper), family (NAS-PTE, Syno or
    original), operator, latency_ms, original_ms, speedup, is_best: whether it is the fastest of its family in this layer.
    """
    found = timed(rows, layers=True)
    found = found[(found["model"] == LAYERED) & found["layer"].isin(LAYERS)].reset_index(drop=True)
    found = found.assign(label=found["layer"].map(LAYERS), family=found["operator"].map(_family))
    best = found.groupby([*KEYS, "family"])["latency_ms"].idxmin()
    found = found.assign(is_best=found.index.isin(best)).sort_values("operator")
    found = ordered(found, compiler=COMPILERS, device=DEVICES, layer=LAYERS, family=(ORIGINAL, THEIRS, OURS))
    return found[
        ["device", "compiler", "layer", "label", "family", "operator", "latency_ms", "original_ms", "speedup", "is_best"]
    ]


def best_over_best(table: pandas.DataFrame) -> pandas.DataFrame:
    """How much faster the best of ours is than the best of theirs: geometric means over the layers that both have.

    Columns: device, compiler, speedup; speedup_with_original: over the faster of theirs and the convolution itself; layers (how
    many).
    """
    best = table[table["is_best"]].pivot(index=KEYS, columns="family", values="latency_ms")
    best = best.reindex(columns=[ORIGINAL, THEIRS, OURS]).dropna(subset=[THEIRS, OURS]).reset_index()
    best = best.assign(
        ratio=best[THEIRS] / best[OURS],
        guarded=best[[THEIRS, ORIGINAL]].min(axis="columns") / best[OURS],
    )
    means = [
        (device, compiler, geometric_mean(list(group["ratio"])), geometric_mean(list(group["guarded"])), len(group))
        for (device, compiler), group in best.groupby(["device", "compiler"], sort=False)
    ]
    return pandas.DataFrame(means, columns=["device", "compiler", "speedup", "speedup_with_original", "layers"])


def _family(operator: str) -> str:
    return ORIGINAL if operator == ORIGINAL else THEIRS if operator in NAS_PTE else OURS

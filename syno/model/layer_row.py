"""A layer with weights as a row of a table: what it is, its share of the work, and whether operators replace it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from syno.base.record import Amount, Count, Number
from syno.base.text_tables import Row

REPLACED = "replaced"


class LayerRow(BaseModel):
    """A layer with weights.

    Attributes:
        name: in the network.
        kind: in words, such as "3x3 convolution, stride 2".
        input, output: shapes without the batch.
        flops: multiply-adds for one sample, of all its uses.
        parameters: with its bias.
        reason: why it is not replaced; "" if it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    kind: str
    input: tuple[Count, ...]
    output: tuple[Count, ...]
    flops: Amount
    parameters: Number
    reason: str


def as_table(rows: Sequence[LayerRow], total_flops: float, times: Mapping[str, float] | None = None) -> list[Row]:
    """Return the rows of a table for people; layers that are equal in all but their name make one row.

    Args:
        rows: of `layer_rows`.
        total_flops: of the network, for one sample.
        times: the layers' shares of the network's time, by name, if they were measured.
    """
    alike = Counter(_likeness(row) for row in rows)
    shown: dict[tuple[object, ...], Row] = {}
    for row in rows:
        key = _likeness(row)
        count = alike[key]
        shown.setdefault(
            key,
            {
                "layer": row.name + (f" and {count - 1} more" if count > 1 else ""),
                "kind": row.kind,
                "input": _shape(row.input),
                "output": _shape(row.output),
                "by operators": REPLACED if not row.reason else f"stays: {row.reason}",
                "FLOPs": f"{count * row.flops / max(total_flops, 1):.1%}",
                **({"time": f"{sum(times.get(one.name, 0) for one in rows if _likeness(one) == key):.1%}"} if times else {}),
            },
        )
    return list(shown.values())


def _likeness(row: LayerRow) -> tuple[object, ...]:
    return row.kind, row.input, row.output, row.reason


def _shape(lengths: tuple[int, ...]) -> str:
    return "x".join(map(str, lengths))

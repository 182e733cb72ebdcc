"""A layer with multiply-adds as a row of a table: its kind, its share of the FLOPs, and whether operators replace it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from syno.base.record import Amount, Count, Number
from syno.base.text_tables import Row, shown

REPLACED, WHOLE = "replaced", "(the network itself)"


class LayerRow(BaseModel):
    """A layer that does multiply-adds, or a module whose `forward` calls functions that do.

    Attributes:
        name: the layer's name in the network; "" for the network itself.
        kind: the kind of layer in words, such as "3x3 convolution, stride 2".
        input, output: shapes without their first axis, the batch.
        flops: multiply-adds of all calls of the layer, for one sample.
        parameters: number of its parameters including the bias, without those of its submodules.
        reason: the reason why the layer is not replaced; "" if it is.
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
    """Return the rows of a printed table; layers that differ only in their name share a row.

    Args:
        rows: the rows that `layer_rows` returns.
        total_flops: multiply-adds of the network for one sample.
        times: share of the network's time of each layer that is called, by name; None if it was not measured.
    """
    alike = Counter(_likeness(row) for row in rows)
    table: dict[tuple[object, ...], Row] = {}
    for row in rows:
        key = _likeness(row)
        count = alike[key]
        table.setdefault(
            key,
            {
                "layer": (row.name or WHOLE) + (f" and {count - 1} more" if count > 1 else ""),
                "kind": row.kind,
                "input": _shape(row.input),
                "output": _shape(row.output),
                "by operators": REPLACED if not row.reason else f"stays: {row.reason}",
                "FLOPs": f"{count * row.flops / max(total_flops, 1):.1%}",
                **({"time": _time([one.name for one in rows if _likeness(one) == key], times)} if times else {}),
            },
        )
    return list(table.values())


def _likeness(row: LayerRow) -> tuple[object, ...]:
    return row.kind, row.input, row.output, row.reason


def _time(names: Sequence[str], times: Mapping[str, float]) -> str:
    """Return the sum of the layers' shares of the time as text; a dash if none of them was timed."""
    known = [times[name] for name in names if name in times]
    return f"{sum(known):.1%}" if known else shown(None)


def _shape(lengths: tuple[int, ...]) -> str:
    return "x".join(map(str, lengths))

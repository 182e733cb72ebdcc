"""A layer that does multiply-adds as a row of a table: what it is, its share, and whether operators replace it."""

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
        name: in the network; "" of the network itself.
        kind: in words, such as "3x3 convolution, stride 2".
        input, output: shapes without their first axis, which is the batch of a layer that is called.
        flops: multiply-adds for one sample, of all its uses.
        parameters: with its bias, without those of other modules in it.
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
        times: the shares of the network's time of the layers that are called, by name, if they were measured.
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
    """Return the layers' share of the time; a dash for layers that are not called, which have no time of their own."""
    known = [times[name] for name in names if name in times]
    return f"{sum(known):.1%}" if known else shown(None)


def _shape(lengths: tuple[int, ...]) -> str:
    return "x".join(map(str, lengths))

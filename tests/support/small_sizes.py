"""A few variables, and sizes made of them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from syno.algebra import Size, VariableTable

TABLE = VariableTable.parse("C, H, W; c, g, k")
C, H, W, c, g, k = (Size.of(variable) for variable in TABLE.values())

exponent_rows = st.tuples(*[st.integers(-3, 3)] * len(TABLE))
sizes = exponent_rows.map(lambda row: Size(dict(zip(TABLE.values(), row, strict=True))))
deterministic = settings(deadline=None, derandomize=True, max_examples=60)


def size(text: str) -> Size:
    return TABLE.size(text)

"""The input elements that an output element depends on, in words: applied once, and twice, as neighbouring layers apply it.

>>> import syno
>>> print(dependence(syno.OPERATORS["operator_2"]()), end="")
What an output element depends on (C_in=64, C_out=64, H=32; g=32, k_1=3, s=2):
  applied once   3 x 3 positions: rows from its own to 2 after, columns from 1 before to 1 after; every channel
  applied twice  5 x 5 positions: rows from its own to 4 after, columns from 2 before to 2 after; every channel
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction

from syno.algebra import VariableKind
from syno.base.errors import LoweringError, SizeError, ValuationError
from syno.ir.graph import PGraph
from syno.ir.read_pattern import AxisPattern, ReadPattern, is_picture, read_pattern, weights_used
from syno.report.operators.words import axis_names

COPY = "which costs a copy of the data that FLOPs do not count; `syno tune` measures it"
ENDS = (" (rows)", " (columns)")  # of the names of a picture's axes


def dependence(operator: PGraph, values: Mapping[str, int] | None = None) -> str:
    """Return lines on what is read, applied once and twice, on exchanged axes, and on elements that are not used.

    The sizes are shown. Primaries without a value get an example, as do all where the given ones are too large, or do not allow
    applying the operator twice. Empty if a coefficient has no value, or a size is no whole number.

    Args:
        operator: the operator.
        values: of variables.
    """
    given, kinds = values or {}, {name: variable.kind for name, variable in operator.variables.items()}
    small = {name: value for name, value in given.items() if kinds.get(name) is VariableKind.COEFFICIENT}
    try:
        once = read_pattern(operator, values)
    except (SizeError, ValuationError):
        return ""
    except LoweringError:  # too large
        return dependence(operator, small) if small != given else ""
    lines = [f"What an output element depends on{_sizes(operator, once.values)}:"]
    lines.append(f"  applied once   {_elements(operator, once)}")
    for sizes in (once.values, small):  # the second, if the first are too large, or differ for input and output
        with suppress(SizeError, LoweringError):
            twice = read_pattern(operator, sizes, applied=2)
            shown = "" if twice.values == once.values else _sizes(operator, twice.values)
            lines.append(f"  applied twice  {_elements(operator, twice)}{shown}")
            break
    return "\n".join([*lines, *_notes(operator, once)]) + "\n"


def _sizes(operator: PGraph, values: Mapping[str, int]) -> str:
    kinds = [
        ", ".join(
            f"{name}={values[name]}"
            for name, variable in operator.variables.items()
            if variable.kind is kind and name not in operator.unchanged_variables
        )
        for kind in VariableKind
    ]
    shown = "; ".join(filter(None, kinds))
    return shown and f" ({shown})"


def _notes(operator: PGraph, pattern: ReadPattern) -> Iterator[str]:
    names = [_plain(name) for name in axis_names([dim.size for dim in operator.input])]
    for one, other in pattern.exchanged:
        yield f"It exchanges {names[one]} and {names[other]}, {COPY}."
    if pattern.is_transposed and not pattern.exchanged:
        yield f"It moves data to another axis, {COPY}."
    if pattern.used < 1:
        yield f"Only {_percent(pattern.used)} of the input's elements are read."
    for number, share in enumerate(weights_used(operator, pattern.values), 1):
        if share < 1:
            yield f"Only {_percent(share)} of the elements of w{number} are used."


def _elements(operator: PGraph, pattern: ReadPattern) -> str:
    """Return the positions along all axes; those along which it only reads its own are left out if there are others."""
    if not pattern.position_counts[1]:
        return "nothing"
    names, outputs = (axis_names([dim.size for dim in dims]) for dims in (operator.input, operator.output))
    picture = pattern.places if is_picture([dim.size for dim in operator.input]) else ()
    parts = [_picture(pattern, *(pattern.axes[axis] for axis in picture))] if picture else []
    for axis in pattern.axes:
        if picture and axis.axis == picture[0] - 1:
            parts.append(_channels(axis))
        elif axis.axis not in picture and not _is_own(axis):
            parts.append(_axis(axis, names[axis.axis], outputs))
    if not picture and all(_is_own(pattern.axes[place]) for place in pattern.places):
        parts.insert(0, "its own position")
    return "; ".join(parts)


def _picture(pattern: ReadPattern, rows: AxisPattern, columns: AxisPattern) -> str:
    """Return the positions in a picture."""
    least, most = pattern.position_counts
    if _is_all(rows) and _is_all(columns):
        return "every position"
    if most == 1:
        what = "one position"
    elif columns.most == 1:
        what = "a whole column" if _is_all(rows) else f"a column of {_number(rows)}"
    elif rows.most == 1:
        what = "a whole row" if _is_all(columns) else f"a row of {_number(columns)}"
    else:
        all_of = f"{_number(rows)} x {_number(columns)} positions"
        what = all_of if pattern.is_full else f"{_range(least, most)} of {all_of}"
    exchanged = (rows.axis, columns.axis) in pattern.exchanged
    swapped = ", rows and columns exchanged" if exchanged else ""
    own = {rows.axis: columns.axis, columns.axis: rows.axis} if exchanged else {axis: axis for axis in pattern.places}
    parts = [(name, axis) for name, axis in (("row", rows), ("column", columns)) if not _is_all(axis)]
    if all(axis.follows == own[axis.axis] and _is_around(axis) for _, axis in parts):
        around = ", its own" if most == 1 else " around its own"
        return f"{what}{around}{_gaps(rows) or _gaps(columns)}{swapped}"
    places = []
    for name, axis in parts:
        other = "" if axis.follows in (None, own[axis.axis]) else f" from the output's {'column' if name == 'row' else 'row'}"
        places.append(f"{name}s {_span(axis)}{other}")
    return f"{what}: {', '.join(places)}{swapped}"


def _channels(axis: AxisPattern) -> str:
    if _is_own(axis):
        return "its own channel"
    return "every channel" if _is_all(axis) else f"{_number(axis)} of {axis.length} channels"


def _axis(axis: AxisPattern, name: str, outputs: Sequence[str]) -> str:
    if _is_all(axis):
        return f"all of {name}"
    if axis.follows is None:
        return f"{_number(axis)} of {axis.length} of {name}"
    at = "" if axis.follows == axis.axis else f"around the output's {outputs[axis.follows]}, "
    return f"{_number(axis)} position{'' if axis.most == 1 else 's'} of {name}: {at}{_span(axis)}"


def _is_all(axis: AxisPattern) -> bool:
    return axis.least == axis.length > 1


def _is_own(axis: AxisPattern) -> bool:
    return axis.follows == axis.axis and axis.offsets == (0,) and not axis.is_mirrored


def _is_around(axis: AxisPattern) -> bool:
    """Return whether the offsets are symmetric around 0, the output element's own position."""
    same_for_all = axis.offsets == axis.common
    return same_for_all and not axis.is_mirrored and 0 in axis.offsets and axis.offsets[0] == -axis.offsets[-1]


def _span(axis: AxisPattern) -> str:
    if axis.follows is None:
        return "at no fixed distance"
    first, last = axis.offsets[0], axis.offsets[-1]
    mirrored = ", counted from the other end" if axis.is_mirrored else ""
    varying = ", depending on the position" if axis.offsets != axis.common else ""
    if first == last:
        return f"{_side(first)}{mirrored}"
    return f"from {_side(first)} to {_side(last)}{_gaps(axis)}{mirrored}{varying}"


def _side(offset: int) -> str:
    return "its own" if offset == 0 else f"{abs(offset)} {'after' if offset > 0 else 'before'}"


def _gaps(axis: AxisPattern) -> str:
    apart = sorted({after - before for before, after in zip(axis.offsets, axis.offsets[1:], strict=False)})
    return "" if apart in ([1], []) else f" ({' or '.join(map(str, apart))} apart)"


def _number(axis: AxisPattern) -> str:
    return f"all {axis.length}" if _is_all(axis) else _range(axis.least, axis.most)


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"


def _plain(name: str) -> str:
    return next((end.strip(" ()") for end in ENDS if name.endswith(end)), name)


def _percent(share: Fraction) -> str:
    return f"{float(share):.1%}".replace(".0%", "%").replace("%", " %")

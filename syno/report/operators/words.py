"""What an operator reads of its input, in words, derived from its index map.

`in_words` says how data moves, for all sizes: windows, shifts, exchanged axes. `dependence` counts the elements on which an
output element depends, at some sizes, applied once and twice, as neighbouring layers apply it.

>>> import syno
>>> print(in_words(syno.OPERATORS["operator_2"]()), end="")
What it reads of its input, axis by axis (k_1=3):
  N            at the output's N
  C_in         every position, summed
  H (rows)     at the output's H (rows), from 1 before to 1 after, zero beyond the border; then 1 after, around the border
  H (columns)  at the output's H (columns), from 1 before to 1 after, zero beyond the border
In words: shifts rows by 1 (row i reads row i + 1, around the border), then reads 3 x 3 positions.
>>> print(dependence(syno.OPERATORS["operator_2"]()), end="")
What an output element depends on (C_in=64, C_out=64, H=32; g=32, k_1=3, s=2):
  applied once   3 x 3 positions: rows from its own to 2 after, columns from 1 before to 1 after; every channel
  applied twice  5 x 5 positions: rows from its own to 4 after, columns from 2 before to 2 after; every channel
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from syno.algebra import ONE, Expression, Size, VariableKind
from syno.base.errors import LoweringError, SizeError, ValuationError
from syno.ir.coordinates import index_map
from syno.ir.graph import PGraph
from syno.ir.read_pattern import AxisPattern, ReadPattern, is_picture, read_pattern, weights_used
from syno.ir.reading import AxisReading, Border, Displacement, readings

ROWS, COLUMNS = " (rows)", " (columns)"  # ends of the names of a picture's axes
BORDERS = {Border.NONE: "", Border.ZERO: ", zero beyond the border", Border.AROUND: ", around the border"}
COPY = "which costs a copy of the data that FLOPs do not count; `syno tune` measures it"


@dataclass(frozen=True)
class Move:
    """One displacement along one axis: a window if positions beyond the border are zero or not reached, else a shift."""

    axis: int
    step: Displacement
    offsets: tuple[int, ...]
    reductions: tuple[str, ...]

    @property
    def is_window(self) -> bool:
        """Whether several positions are read, and none of them wraps around the border."""
        return len(self.offsets) > 1 and self.step.border is not Border.AROUND


def moves(readings: Sequence[AxisReading], names: Sequence[str], outputs: int, values: Mapping[str, int]) -> list[str]:
    """Return phrases such as "shifts rows by 1" for axes whose reading has a known form, the first nearest to the input.

    Args:
        readings: the readings of all axes of the input.
        names: the names of these axes.
        outputs: the number of axes of the output.
        values: values of variables, to compute displacements.
    """
    waiting = {one.axis: _moves_of(one, values) for one in readings}
    phrases: list[str] = []
    while any(waiting.values()):
        heads = [queue[0] for queue in waiting.values() if queue]
        shifts = [move for move in heads if not move.is_window]
        taken = shifts or heads  # displacements along different axes can be done in any order
        phrases += [_shift(move, names[move.axis]) for move in shifts] or [_windows(heads, names)]
        for move in taken:
            waiting[move.axis].pop(0)
    phrases += _scaled(readings, names)
    phrases += _exchanged(readings, names, outputs)
    return phrases


def _moves_of(reading: AxisReading, values: Mapping[str, int]) -> list[Move]:
    """Return the displacements along an axis, the first nearest to the input; [] if one of the displacements isn't known."""
    displaced = reading.displacements(values)
    if reading.output is None or displaced is None or (reading.is_block and reading.repeat is not ONE):
        return []  # a group of channels is no window
    pairs = zip(reversed(reading.steps), reversed(displaced), strict=True)
    return [
        Move(reading.axis, step, found, tuple(name for name in reading.reductions if name in step.offset.iterators))
        for step, found in pairs
        if found != (0,)
    ]


def _shift(move: Move, name: str) -> str:
    by = f"{', '.join(map(str, move.offsets[:-1]))} or {move.offsets[-1]}" if len(move.offsets) > 1 else str(move.offsets[0])
    depending = f", depending on {', '.join(move.reductions)}" if move.reductions else ""
    border = BORDERS[move.step.border]
    one, offset = _singular(name), move.offsets[0]
    if len(move.offsets) > 1:
        return f"shifts {_plural(name)} by {by}{depending}{border}"
    sign = f"+ {offset}" if offset > 0 else f"- {-offset}"
    return f"shifts {_plural(name)} by {by} ({one} i reads {one} i {sign}{border})"


def _windows(heads: Sequence[Move], names: Sequence[str]) -> str:
    """Return a phrase for the windows along several axes together, such as "reads 3 x 3 positions"."""
    shared = [
        name for move in heads for name in move.reductions if any(name in other.reductions for other in heads if other != move)
    ]
    picture = {end: move for end in (ROWS, COLUMNS) for move in heads if names[move.axis].endswith(end)}
    others = [move for move in heads if move not in picture.values()]
    phrases = [f"{len(move.offsets)} positions of {names[move.axis]}{_gaps(move.offsets)}" for move in others]
    if picture:
        phrases.append(_window_of_picture(picture.get(ROWS), picture.get(COLUMNS)))
    together = f", which vary together with {', '.join(dict.fromkeys(shared))}" if shared else ""
    return f"reads {' and '.join(phrases)}{together}"


def _window_of_picture(rows: Move | None, columns: Move | None) -> str:
    if rows is not None and columns is not None:
        gaps = _gaps(rows.offsets) or _gaps(columns.offsets)
        return f"{len(rows.offsets)} x {len(columns.offsets)} positions{gaps}"
    if rows is not None:
        return f"a column of {len(rows.offsets)}{_gaps(rows.offsets)}"
    assert columns is not None
    return f"a row of {len(columns.offsets)}{_gaps(columns.offsets)}"


def _gaps(offsets: Sequence[int]) -> str:
    apart = sorted({after - before for before, after in pairwise(offsets)})
    return "" if apart in ([1], []) else f" ({' or '.join(map(str, apart))} apart)"


def _scaled(readings: Sequence[AxisReading], names: Sequence[str]) -> Iterator[str]:
    followed = [one for one in readings if one.output is not None]
    for one in followed:
        if one.scale is not ONE and one.repeat is not ONE:
            yield f"takes one of {(one.size / one.scale).fraction_text} groups of {names[one.axis]}"
    for what, of in (("keeps one of every {} {}", _pure_scale), ("repeats each {} times: {}", _pure_repeat)):
        for size in dict.fromkeys(map(of, followed)):
            if size is not ONE:
                axes = " and ".join(_plural(names[one.axis]) for one in followed if of(one) is size)
                yield what.format(size.fraction_text, axes)


def _pure_scale(reading: AxisReading) -> Size:
    return reading.scale if reading.repeat is ONE else ONE


def _pure_repeat(reading: AxisReading) -> Size:
    return reading.repeat if reading.scale is ONE else ONE


def _exchanged(readings: Sequence[AxisReading], names: Sequence[str], outputs: int) -> Iterator[str]:
    """Yield a phrase for each pair of input axes that are swapped: each follows the output axis of the other."""
    if len(readings) != outputs:
        return
    for one in readings:
        if one.output is not None and one.output > one.axis and readings[one.output].output == one.axis:
            yield f"exchanges {_plural(names[one.axis])} and {_plural(names[one.output])}"


def _plural(name: str) -> str:
    return next((end.strip(" ()") for end in (ROWS, COLUMNS) if name.endswith(end)), f"positions of {name}")


def _singular(name: str) -> str:
    plural = _plural(name)
    return plural[:-1] if plural in ("rows", "columns") else "position"


def in_words(operator: PGraph, values: Mapping[str, int] | None = None) -> str:
    """Return a line for each axis of the input, which says where it is read, and a sentence about all axes together.

    Args:
        operator: the operator.
        values: values of variables without a default. Displacements with unknown variables are shown as expressions.
    """
    known = {**operator.variables.defaults, **(values or {})}
    found = readings(operator)
    inputs, outputs = (axis_names([dim.size for dim in dims]) for dims in (operator.input, operator.output))
    used = _variables(operator, found)
    where = ", ".join(f"{name}={known[name]}" for name in used if name in known)
    width = max((len(name) for name in inputs), default=0)
    lines = [f"What it reads of its input, axis by axis{where and f' ({where})'}:"]
    lines += [f"  {name:<{width}}  {_place(one, outputs, known)}" for name, one in zip(inputs, found, strict=True)]
    lines += _together(found, inputs)
    lines += _conditions(operator, found)
    if done := moves(found, inputs, len(outputs), known):
        lines.append(f"In words: {', then '.join(done)}{_rest(found, inputs)}.")
    elif all(_stays(one) for one in found):
        lines.append("In words: reads one position, the output's own; nothing is shifted, exchanged or repeated.")
    return "\n".join(lines) + "\n"


def axis_names(sizes: Sequence[Size]) -> list[str]:
    """Return a name for each axis: its size, with "rows" and "columns" in pictures, or with a number where sizes are equal."""
    texts = [size.fraction_text for size in sizes]
    ends = ["" if texts.count(text) == 1 else f" (axis {axis})" for axis, text in enumerate(texts)]
    if is_picture(sizes):
        ends[-2:] = ROWS, COLUMNS
    return [text + end for text, end in zip(texts, ends, strict=True)]


def text_of(index: Expression) -> str:
    """Return an index expression as `syno show` writes it in the loop nest."""
    return index.text(lambda size: size.integer_text().replace(" ", ""))


def _variables(operator: PGraph, readings: Sequence[AxisReading]) -> list[str]:
    """Return the names of the variables on which displacements depend, in the operator's order."""
    steps = [step for one in readings if one.repeat is ONE for step in one.steps]
    texts, sums = [text_of(step.offset) for step in steps], {name for step in steps for name in step.offset.iterators}
    texts += [size.integer_text() for name, size in (readings[0].extents if readings else {}).items() if name in sums]
    words = set(re.findall(r"[A-Za-z]\w*", " ".join(texts)))
    return [name for name in operator.variables if name in words]


def _stays(reading: AxisReading) -> bool:
    return reading.is_every or (reading.output == reading.axis and reading.scale is ONE and reading.repeat is ONE)


def _rest(readings: Sequence[AxisReading], names: Sequence[str]) -> str:
    """Return a note on the axes whose index has no known form, so that the sentence does not seem complete."""
    others = [names[one.axis] for one in readings if one.output is None and one.outputs]
    return f"; {' and '.join(others)}: as the index above says" if others else ""


def _place(reading: AxisReading, outputs: Sequence[str], values: Mapping[str, int]) -> str:
    if reading.is_every:
        return "every position, summed"
    if reading.output is None:
        over = f", summed over {', '.join(reading.reductions)}" if reading.reductions else ""
        return f"at {text_of(reading.index)}{over}"
    name = outputs[reading.output]
    if reading.is_block:
        block = "" if reading.repeat is ONE else f" divided by {reading.repeat.fraction_text}, rounded down"
        count, length = (reading.size / reading.scale).fraction_text, reading.scale.fraction_text
        return f"every position of one of {count} blocks of {length}, summed: the block at the output's {name}{block}"
    scale = "" if reading.scale is ONE else f"{reading.scale.fraction_text} times "
    repeat = "" if reading.repeat is ONE else f" divided by {reading.repeat.fraction_text}, rounded down"
    displaced = reading.displacements(values) or (None,) * len(reading.steps)
    steps = [_step(step, found) for step, found in zip(reading.steps, displaced, strict=True)]
    return f"at {scale}the output's {name}{repeat}{', ' if steps else ''}{'; then '.join(steps)}"


def _step(step: Displacement, displacements: tuple[int, ...] | None) -> str:
    border = BORDERS[step.border]
    if displacements is None:
        return f"plus {text_of(step.offset)}{border}"
    if len(displacements) == 1:
        return f"{_side(displacements[0])}{border}"
    if displacements == tuple(range(displacements[0], displacements[-1] + 1)):
        return f"from {_side(displacements[0])} to {_side(displacements[-1])}{border}"
    return f"{', '.join(map(str, displacements[:-1]))} and {displacements[-1]} from there{border}"


def _side(offset: int, own: str = "there") -> str:
    return own if offset == 0 else f"{abs(offset)} {'after' if offset > 0 else 'before'}"


def _together(readings: Sequence[AxisReading], names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each set of input axes whose positions depend on the same reduction."""
    for reduction in dict.fromkeys(name for one in readings for name in one.reductions):
        axes = [names[one.axis] for one in readings if reduction in one.reductions]
        if len(axes) > 1:
            yield f"  {', '.join(axes[:-1])} and {axes[-1]} vary together: they depend on {reduction}"


def _conditions(operator: PGraph, readings: Sequence[AxisReading]) -> Iterator[str]:
    """Yield a line for each condition on summands that the lines of the axes do not mention."""
    said = {step.condition for one in readings for step in one.steps}
    for index, extent in index_map(operator).conditions:
        if (index, extent) not in said:
            yield f"  counted only where 0 <= {text_of(index)} < {extent.integer_text()}"


def dependence(operator: PGraph, values: Mapping[str, int] | None = None) -> str:
    """Return lines on the positions read by the operator applied once and twice, on exchanged axes and unused elements.

    The first line shows the sizes. Primary variables without a value get an example value; all do if `values` are too large or
    do not allow applying the operator twice. "" if a coefficient has no value, or a size is no whole number.

    Args:
        operator: the operator.
        values: values of variables.
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
    """Return the positions read along all axes, in words; axes with only the own position only if there are no others."""
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
    """Return the positions read along the rows and columns of a picture, in words."""
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
        return f"{what}{around}{_gaps(rows.offsets) or _gaps(columns.offsets)}{swapped}"
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
        return f"{_side(first, 'its own')}{mirrored}"
    return f"from {_side(first, 'its own')} to {_side(last, 'its own')}{_gaps(axis.offsets)}{mirrored}{varying}"


def _number(axis: AxisPattern) -> str:
    return f"all {axis.length}" if _is_all(axis) else _range(axis.least, axis.most)


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"


def _plain(name: str) -> str:
    return _plural(name) if name.endswith((ROWS, COLUMNS)) else name


def _percent(share: Fraction) -> str:
    return f"{float(share):.1%}".replace(".0%", "%").replace("%", " %")

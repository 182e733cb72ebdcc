"""An operator's reading of its input in words, derived from its index map: windows, shifts, exchanged axes.

>>> import syno
>>> print(in_words(syno.OPERATORS["operator_2"]()), end="")
What it reads of its input, axis by axis (k_1=3):
  N            at the output's N
  C_in         every position, summed
  H (rows)     at the output's H (rows), from 1 before to 1 after, zero beyond the border; then 1 after, around the border
  H (columns)  at the output's H (columns), from 1 before to 1 after, zero beyond the border
In words: shifts rows by 1 (row i reads row i + 1, around the border), then reads 3 x 3 positions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from syno.algebra import ONE, Expression, Size
from syno.ir.coordinates import index_map
from syno.ir.graph import PGraph
from syno.ir.reading import AxisReading, Border, Displacement, readings

# Phrases for an operator's actions on the axes of its input: shifts, windows, repeats and exchanges, from the input on.


ROWS, COLUMNS = " (rows)", " (columns)"  # ends of the names of a picture's axes


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
    """Return phrases for the actions on the axes, the first nearest to the input, for axes whose reading has a known form.

    Args:
        readings: the readings of all axes of the input.
        names: of these axes.
        outputs: how many axes the output has.
        values: of variables, for displacements.
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
    """Return the displacements along an axis, the first nearest to the input; none if one of them isn't known."""
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
    border = {Border.NONE: "", Border.ZERO: ", zero beyond the border", Border.AROUND: ", around the border"}[move.step.border]
    one, offset = _singular(name), move.offsets[0]
    if len(move.offsets) > 1:
        return f"shifts {_plural(name)} by {by}{depending}{border}"
    sign = f"+ {offset}" if offset > 0 else f"- {-offset}"
    return f"shifts {_plural(name)} by {by} ({one} i reads {one} i {sign}{border})"


def _windows(heads: Sequence[Move], names: Sequence[str]) -> str:
    """Return a phrase for windows along several axes at once."""
    shared = [
        name for move in heads for name in move.reductions if any(name in other.reductions for other in heads if other != move)
    ]
    picture = {end: move for end in (ROWS, COLUMNS) for move in heads if names[move.axis].endswith(end)}
    others = [move for move in heads if move not in picture.values()]
    phrases = [f"{len(move.offsets)} positions of {names[move.axis]}{_gaps(move)}" for move in others]
    if picture:
        phrases.append(_window_of_picture(picture.get(ROWS), picture.get(COLUMNS)))
    together = f", which vary together with {', '.join(dict.fromkeys(shared))}" if shared else ""
    return f"reads {' and '.join(phrases)}{together}"


def _window_of_picture(rows: Move | None, columns: Move | None) -> str:
    if rows is not None and columns is not None:
        gaps = _gaps(rows) or _gaps(columns)
        return f"{len(rows.offsets)} x {len(columns.offsets)} positions{gaps}"
    if rows is not None:
        return f"a column of {len(rows.offsets)}{_gaps(rows)}"
    assert columns is not None
    return f"a row of {len(columns.offsets)}{_gaps(columns)}"


def _gaps(move: Move) -> str:
    apart = sorted({after - before for before, after in zip(move.offsets, move.offsets[1:], strict=False)})
    return "" if apart == [1] else f" ({' or '.join(map(str, apart))} apart)"


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
    """Yield a phrase for each pair of axes that follow each other's output axis."""
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


PICTURE = ("rows", "columns")  # the last two axes, where they have the same length


def in_words(operator: PGraph, values: Mapping[str, int] | None = None) -> str:
    """Return a line for each axis of the input, which says where it is read, and a sentence about all axes together.

    Args:
        operator: the operator.
        values: of variables; those with a default need none. Displacements that depend on others are shown as expressions.
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
    count, last = Counter(texts), len(texts) - 1
    is_picture = last >= 1 and texts[last] == texts[last - 1] and count[texts[last]] == len(PICTURE)
    return [
        f"{text} ({PICTURE[axis - last + 1]})"
        if is_picture and axis >= last - 1
        else f"{text} (axis {axis})"
        if count[text] > 1
        else text
        for axis, text in enumerate(texts)
    ]


def text_of(index: Expression) -> str:
    """Return an index as `syno show` writes it in the loops."""
    return index.text(lambda size: size.integer_text().replace(" ", ""))


def _variables(operator: PGraph, readings: Sequence[AxisReading]) -> list[str]:
    """Return the variables on which displacements depend, in the operator's order."""
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
    border = {Border.NONE: "", Border.ZERO: ", zero beyond the border", Border.AROUND: ", around the border"}[step.border]
    if displacements is None:
        return f"plus {text_of(step.offset)}{border}"
    if len(displacements) == 1:
        return f"{_side(displacements[0])}{border}"
    if displacements == tuple(range(displacements[0], displacements[-1] + 1)):
        return f"from {_side(displacements[0])} to {_side(displacements[-1])}{border}"
    return f"{', '.join(map(str, displacements[:-1]))} and {displacements[-1]} from there{border}"


def _side(offset: int) -> str:
    return "there" if offset == 0 else f"{abs(offset)} {'after' if offset > 0 else 'before'}"


def _together(readings: Sequence[AxisReading], names: Sequence[str]) -> Iterator[str]:
    """Yield a line for axes that depend on the same reduction."""
    for reduction in dict.fromkeys(name for one in readings for name in one.reductions):
        axes = [names[one.axis] for one in readings if reduction in one.reductions]
        if len(axes) > 1:
            yield f"  {', '.join(axes[:-1])} and {axes[-1]} vary together: they depend on {reduction}"


def _conditions(operator: PGraph, readings: Sequence[AxisReading]) -> Iterator[str]:
    """Yield the conditions on summands that no step of an axis mentions."""
    said = {step.condition for one in readings for step in one.steps}
    for index, extent in index_map(operator).conditions:
        if (index, extent) not in said:
            yield f"  counted only where 0 <= {text_of(index)} < {extent.integer_text()}"

"""Phrases for an operator's actions on the axes of its input: shifts, windows, repeats and exchanges, from the input on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from syno.algebra import ONE, Size
from syno.ir.reading import AxisReading, Border, Displacement

ROWS, COLUMNS = " (rows)", " (columns)"  # ends of the names of a picture's axes


@dataclass(frozen=True)
class Move:
    """One displacement along one axis: a window if positions beyond the border are zero or not reached, else a shift."""

    axis: int
    step: Displacement
    found: tuple[int, ...]
    reductions: tuple[str, ...]

    @property
    def is_window(self) -> bool:
        """Whether several positions are read, and none of them wraps around the border."""
        return len(self.found) > 1 and self.step.border is not Border.AROUND


def moves(found: Sequence[AxisReading], names: Sequence[str], outputs: int, values: Mapping[str, int]) -> list[str]:
    """Return phrases for the actions on the axes, the first nearest to the input, for axes whose reading has a known form.

    Args:
        found: the readings of all axes of the input.
        names: of these axes.
        outputs: how many axes the output has.
        values: of variables, for displacements.
    """
    waiting = {one.axis: _moves_of(one, values) for one in found}
    phrases: list[str] = []
    while any(waiting.values()):
        heads = [queue[0] for queue in waiting.values() if queue]
        shifts = [move for move in heads if not move.is_window]
        taken = shifts or heads  # displacements along different axes can be done in any order
        phrases += [_shift(move, names[move.axis]) for move in shifts] or [_windows(heads, names)]
        for move in taken:
            waiting[move.axis].pop(0)
    phrases += _scaled(found, names)
    phrases += _exchanged(found, names, outputs)
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
    by = f"{', '.join(map(str, move.found[:-1]))} or {move.found[-1]}" if len(move.found) > 1 else str(move.found[0])
    depending = f", depending on {', '.join(move.reductions)}" if move.reductions else ""
    border = {Border.NONE: "", Border.ZERO: ", zero beyond the border", Border.AROUND: ", around the border"}[move.step.border]
    one, offset = _singular(name), move.found[0]
    if len(move.found) > 1:
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
    phrases = [f"{len(move.found)} positions of {names[move.axis]}{_gaps(move)}" for move in others]
    if picture:
        phrases.append(_window_of_picture(picture.get(ROWS), picture.get(COLUMNS)))
    together = f", which vary together with {', '.join(dict.fromkeys(shared))}" if shared else ""
    return f"reads {' and '.join(phrases)}{together}"


def _window_of_picture(rows: Move | None, columns: Move | None) -> str:
    if rows is not None and columns is not None:
        gaps = _gaps(rows) or _gaps(columns)
        return f"{len(rows.found)} x {len(columns.found)} positions{gaps}"
    if rows is not None:
        return f"a column of {len(rows.found)}{_gaps(rows)}"
    assert columns is not None
    return f"a row of {len(columns.found)}{_gaps(columns)}"


def _gaps(move: Move) -> str:
    apart = sorted({after - before for before, after in zip(move.found, move.found[1:], strict=False)})
    return "" if apart == [1] else f" ({' or '.join(map(str, apart))} apart)"


def _scaled(found: Sequence[AxisReading], names: Sequence[str]) -> Iterator[str]:
    followed = [one for one in found if one.output is not None]
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


def _exchanged(found: Sequence[AxisReading], names: Sequence[str], outputs: int) -> Iterator[str]:
    """Yield a phrase for each pair of axes that follow each other's output axis."""
    if len(found) != outputs:
        return
    for one in found:
        if one.output is not None and one.output > one.axis and found[one.output].output == one.axis:
            yield f"exchanges {_plural(names[one.axis])} and {_plural(names[one.output])}"


def _plural(name: str) -> str:
    return next((end.strip(" ()") for end in (ROWS, COLUMNS) if name.endswith(end)), f"positions of {name}")


def _singular(name: str) -> str:
    plural = _plural(name)
    return plural[:-1] if plural in ("rows", "columns") else "position"

"""The steps to a known operator, with the distance at each step and the rules that apply; and the table of rules."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table

from syno.algebra import ONE, Size
from syno.ir.graph import PGraph
from syno.space.distance.search import CheapestAssignment, InputAxes
from syno.space.reach import PathStep, reach
from syno.space.refusal import described
from syno.space.rules.listing import COLUMNS, rows
from syno.space.space import Space

INDENT = "      "
NARROW = {"id", "kind"}  # columns of the table of rules that are not wrapped


def explain(space: Space, operator: PGraph) -> str:
    """Return the steps to an operator as text.

    The distance is the least number of primitives still missing after a step. The groups of axes below it belong to the
    assignment with that cost.

    Raises UnreachableError that names the rule or option which excludes the operator.
    """
    stages = reach(space, operator)
    steps = len(stages) - 1  # the last makes the state an operator
    lines = [f"{operator.name} is in the space {space.spec.name}: {steps} primitives, at most {space.spec.depth}", ""]
    for number, stage in enumerate(stages[:-1], 1):
        lines += [f"{number:>3}  {described(stage.candidate)}", *_details(space, stage)]
    lines += [f"end  {described(stages[-1].candidate)}", f"{INDENT}accepted by {_accepting(space, stages[-1])}", ""]
    used = {row.id: row.forbids for stage in stages for row in space.rules.of(stage.candidate.kind)}
    lines += ["The rules that looked at it, and what they forbid:", *(f"{id_:>5}  {forbids}" for id_, forbids in used.items())]
    price = space.completion.cost(operator)
    lines += ["", f"The model with it: {price.flops:,.0f} FLOPs, {price.parameters:,.0f} parameters."]
    return "\n".join(lines) + "\n"


def _details(space: Space, stage: PathStep) -> Iterator[str]:
    yield f"{INDENT}distance {stage.distance} of {stage.left} primitives that may still be added"
    if stage.cheapest is not None:
        yield from (f"{INDENT}  {fate}" for fate in _fates(stage.cheapest))
    yield f"{INDENT}accepted by {_accepting(space, stage)}"


def _accepting(space: Space, stage: PathStep) -> str:
    return ", ".join(row.id for row in space.rules.of(stage.candidate.kind)) or "every rule: none looks at such steps"


def _fates(grouping: CheapestAssignment) -> Iterator[str]:
    """Yield a line for each group of axes that are not axes of the input yet."""
    yield from (_group(group) for group in grouping.groups if group.wanted != group.axes)
    for title, sizes in (
        ("taken in as windows", grouping.windows),
        ("repeated", grouping.repeated),
        ("ended by weights", grouping.ended),
    ):
        if sizes:
            yield f"{_listed(sizes)}: {title}"


def _group(group: InputAxes) -> str:
    rest = "" if group.rest is ONE else f", with {group.rest} to be cut off"
    return f"{_listed(group.axes)} make {_listed(group.wanted)} of the input{rest}"


def _listed(sizes: Iterable[Size]) -> str:
    return ", ".join(map(str, sizes)) or "nothing"


def rules_text(width: int) -> str:
    """Return the canonicalization rules as plain text: a row per rule, with cells wrapped to a page of `width` characters."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in COLUMNS:
        table.add_column(title, no_wrap=title in NARROW, overflow="fold")
    for row in rows():
        table.add_row(*row)
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"

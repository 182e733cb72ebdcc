"""The way to a known operator, explained: how far it is at each step, why, and which rules looked at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syno.algebra import ONE, Size
from syno.ir.graph import PGraph
from syno.space.distance.axes import Group, Grouping
from syno.space.reach import PathStep, reach
from syno.space.refusal import described
from syno.space.space import Space

INDENT = "      "


def explain(space: Space, operator: PGraph) -> str:
    """The steps to the operator. The distance is the least number of primitives still missing after a step; the groups say
    what becomes of each axis if it is reached that way.

    Raises UnreachableError that names the rule or option which excludes the operator.
    """
    stages = reach(space, operator)
    steps = len(stages) - 1  # the last makes the state an operator
    lines = [f"{operator.name} is in the space {space.spec.name}: {steps} primitives, at most {space.spec.depth}", ""]
    for number, stage in enumerate(stages[:-1], 1):
        lines += [f"{number:>3}  {described(stage.candidate)}", *_details(space, stage)]
    lines += [f"end  {described(stages[-1].candidate)}", f"{INDENT}accepted by {_accepting(space, stages[-1])}", ""]
    used = Counter(row.id for stage in stages for row in space.rules.of(stage.candidate.kind))
    lines += [
        "The rules that looked at it, and what they forbid:",
        *(f"{id_:>5}  {space.rules.table[id_].forbids}" for id_ in used),
    ]
    price = space.completion.cost(operator)
    lines += ["", f"The model with it: {price.flops:,.0f} FLOPs, {price.parameters:,.0f} parameters."]
    return "\n".join(lines) + "\n"


def _details(space: Space, stage: PathStep) -> Iterator[str]:
    yield f"{INDENT}distance {stage.distance} of {stage.left} primitives that may still be added"
    if stage.grouping is not None:
        yield from (f"{INDENT}  {fate}" for fate in _fates(stage.grouping))
    yield f"{INDENT}accepted by {_accepting(space, stage)}"


def _accepting(space: Space, stage: PathStep) -> str:
    return ", ".join(row.id for row in space.rules.of(stage.candidate.kind)) or "every rule: none looks at such steps"


def _fates(grouping: Grouping) -> Iterator[str]:
    """What becomes of the axes, those that are inputs already left out."""
    yield from (_group(group) for group in grouping.groups if group.wanted != group.axes)
    for title, sizes in (
        ("taken in as windows", grouping.windows),
        ("repeated", grouping.repeated),
        ("ended by weights", grouping.ended),
    ):
        if sizes:
            yield f"{_listed(sizes)}: {title}"


def _group(group: Group) -> str:
    rest = "" if group.rest is ONE else f", with {group.rest} to be cut off"
    return f"{_listed(group.axes)} make {_listed(group.wanted)} of the input{rest}"


def _listed(sizes: Iterable[Size]) -> str:
    return ", ".join(map(str, sizes)) or "nothing"

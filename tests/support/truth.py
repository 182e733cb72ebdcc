"""The true number of primitives to the nearest operator, by going through a whole space without the distance."""

from __future__ import annotations

from dataclasses import dataclass

from syno.space import OperatorSpec, Space
from syno.space.distance.problem import UNREACHABLE
from syno.space.state import State


@dataclass(frozen=True)
class Truth:
    """Every state of a space, and how far it is from an operator; UNREACHABLE if there is none within the depth."""

    steps: dict[State, int]
    operators: frozenset[str]

    @classmethod
    def of(cls, spec: OperatorSpec) -> Truth:
        space = Space(spec, use_distance=False)
        levels, children, found = [[space.root]], {}, {}
        for _ in range(spec.depth + 1):
            above: dict[State, None] = {}
            for state in levels[-1]:
                found[state] = space.operators(state)
                children[state] = [child for _, child in space.children(state)]
                above.update(dict.fromkeys(children[state]))
            levels.append(list(above))
        steps: dict[State, int] = {}
        for level in reversed(levels[:-1]):
            for state in level:
                nearest = min((steps[child] + 1 for child in children[state]), default=UNREACHABLE)
                steps[state] = 0 if found[state] else min(nearest, UNREACHABLE)
        return cls(steps, frozenset(operator.id for operators in found.values() for operator in operators))

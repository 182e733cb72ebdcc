"""Steps from one partial operator to the next, by ids that are the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from syno.ir.dim import content_id
from syno.ir.graph import PGraph
from syno.space.rules.table import FINALIZE, Candidate

IN_ORDER = ("Split", "Unfold")  # primitives whose two dims play different parts


@dataclass(frozen=True)
class Step:
    """An arc: what is added, and the state or the complete operator that it leads to.

    Attributes:
        kind: the primitive, "Contraction" or "Finalize".
        id: content id of what is added: the same addition has the same id in different states.
        node: the state, or the operator itself.
        operator: the complete operator if this is a Finalize.
    """

    kind: str
    id: str
    node: Hashable
    operator: PGraph | None = None

    def itself(self) -> Step:
        """This step, as a draft's `look`."""
        return self


@dataclass(frozen=True)
class Draft:
    """What may be a step.

    Attributes:
        kind, id: of the step.
        look: the step if it leads on, else None.
    """

    kind: str
    id: str
    look: Callable[[], Step | None]


def finalize(operator: PGraph) -> Step:
    """The step to a complete operator."""
    return Step(FINALIZE, content_id(FINALIZE, operator.id), operator, operator)


def step_id(candidate: Candidate) -> str:
    """Content id of what a step adds: the same in every state and process."""
    dims = [dim.id + ("-" if dim in candidate.outer else "") for dim in candidate.dims]
    return content_id(candidate.kind, str(candidate.size), *(dims if candidate.kind in IN_ORDER else sorted(dims)))

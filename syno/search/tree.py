"""What a policy searches: a tree of partial operators whose branches may meet again.

Policies and studies know no more of a space of operators than these two protocols; tests give them small explicit trees.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from syno.ir.graph import PGraph


class Arc(NamedTuple):
    """A step without the states it joins: what of a path is the same in every process, and is stored.

    Attributes:
        kind: the primitive, "Contraction" or "Finalize".
        id: content id of what is added.
    """

    kind: str
    id: str


class Step(Protocol):
    """An arc of the search tree.

    Attributes:
        kind: the primitive, "Contraction" or "Finalize".
        id: content id of what is added, the same in every process: one operation has one id, whatever state it is added to.
        node: the state it leads to.
        operator: the complete operator if the step is a Finalize, else None.
    """

    @property
    def kind(self) -> str:  # noqa: D102  (the class says it)
        ...

    @property
    def id(self) -> str:  # noqa: D102
        ...

    @property
    def node(self) -> Hashable:  # noqa: D102
        ...

    @property
    def operator(self) -> PGraph | None:  # noqa: D102
        ...


class Draft(Protocol):
    """What may be a step.

    Attributes:
        kind, id: of the step.
    """

    @property
    def kind(self) -> str:  # noqa: D102  (the class says it)
        ...

    @property
    def id(self) -> str:  # noqa: D102
        ...

    @property
    def look(self) -> Callable[[], Step | None]:
        """What says whether it leads on: the step then, None for a dead end."""
        ...


@runtime_checkable
class Tree(Protocol):
    """A space of operators, reached step by step. Steps that do not depend on each other may be taken in any order and
    lead to one node, so this is a directed graph without cycles. Nodes can be hashed; they have no order.
    """

    @property
    def root(self) -> Hashable:
        """The node that holds nothing but the output."""
        ...

    def steps(self, node: Hashable) -> Sequence[Step]:
        """All steps from `node` that are not known to be dead ends, in an order that every process agrees on.

        () at complete operators and at dead ends. Steps may vanish from it as dead ends become known, but only those.
        """
        ...

    def drafts(self, node: Hashable) -> Iterable[Draft]:
        """All of `steps`, and dead ends beside them, in any order. A draft is looked at by itself.

        For whoever needs one step that leads on: to know all of them takes long.
        """
        ...

    def step(self, node: Hashable, kind: str, id_: str) -> Step | None:
        """The step of this kind and id from `node`, which is on the path to an operator of the tree; None if there is none.

        The same as to look for it among `steps`, which may take long: it has to know which of all steps are dead ends.
        """
        ...

    def walk(self, node: Hashable, random: random.Random, *, by_kind: bool = True) -> tuple[Step, ...] | None:
        """Random steps from `node` to a complete operator, the last one a Finalize; None if they ended in a dead end."""
        ...

    def path(self, operator: PGraph) -> tuple[Step, ...]:
        """The canonical steps from the root to a known operator.

        Raises a SynoError that names the rule or option that excludes it if it is not in the space.
        """
        ...

    def name(self, node: Hashable) -> str:
        """A text that tells the node from all others, the same in every process."""
        ...

    def fingerprint(self, operator: PGraph) -> str:
        """A text that is equal for operators that mean the same."""
        ...


def arcs(steps: Sequence[Step]) -> tuple[Arc, ...]:
    """The path of these steps, as it is stored."""
    return tuple(Arc(step.kind, step.id) for step in steps)

"""What a policy searches: a tree of partial operators whose branches may meet again.

Policies and studies know no more of a space of operators than these two protocols; tests give them small explicit trees.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
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

    def walk(self, node: Hashable, random: random.Random, *, by_kind: bool = True) -> tuple[Step, ...] | None:
        """Random steps from `node` to a complete operator, the last one a Finalize; None if they ended in a dead end."""
        ...

    def path(self, operator: PGraph) -> tuple[Step, ...]:
        """The canonical steps from the root to a known operator.

        Raises a SynoError that names the rule or option that excludes it if it is not in the space.
        """
        ...

    def fingerprint(self, operator: PGraph) -> str:
        """A text that is equal for operators that mean the same."""
        ...


def arcs(steps: Sequence[Step]) -> tuple[Arc, ...]:
    """The path of these steps, as it is stored."""
    return tuple(Arc(step.kind, step.id) for step in steps)


def find(tree: Tree, node: Hashable, arc: Arc) -> Step | None:
    """The step from `node` that adds what `arc` does; None if the tree has none."""
    return next((step for step in tree.steps(node) if step.id == arc.id and step.kind == arc.kind), None)

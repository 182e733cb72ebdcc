"""The interface of a search space: a tree of partial operators whose branches may meet again.

Policies and studies know a space of operators only by these protocols. Tests give them small explicit trees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import NamedTuple, Protocol, runtime_checkable

from syno.ir.graph import PGraph


class Action(NamedTuple):
    """A step without the nodes that it joins. It is the same in every process, so paths are stored as actions.

    Attributes:
        kind: the primitive, "Contraction" or "Finalize".
        id: content id of what is added.
    """

    kind: str
    id: str


class ActionLike(Protocol):
    """Anything with the attributes `kind` and `id` of an `Action`."""

    @property
    def kind(self) -> str:  # noqa: D102  (documented in `Action`)
        ...

    @property
    def id(self) -> str:  # noqa: D102
        ...


class TreeStep(ActionLike, Protocol):
    """A step of the search tree: an action taken at a node. One operation has one id, whatever node it is added to.

    Attributes:
        node: the node that it leads to.
        operator: the complete operator if the step is a Finalize, else None.
    """

    @property
    def node(self) -> Hashable:  # noqa: D102  (documented in the class)
        ...

    @property
    def operator(self) -> PGraph | None:  # noqa: D102
        ...


class TreeDraft(ActionLike, Protocol):
    """A step that was not checked yet: it may lead to a dead end."""

    @property
    def look(self) -> Callable[[], TreeStep | None]:
        """The check: a function that returns the step, or None for a dead end."""
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

    def steps(self, node: Hashable) -> Sequence[TreeStep]:
        """Return all steps from `node` that are not known to be dead ends, in the same order in every process.

        () at complete operators and at dead ends. Steps may vanish from it as dead ends become known, but only those.
        """
        ...

    def drafts(self, node: Hashable) -> Iterable[TreeDraft]:
        """Return drafts of all `steps` from `node`, in any order; some of them are dead ends.

        This is faster than `steps` for a caller that needs a few steps: each draft is checked by itself.
        """
        ...

    def step(self, node: Hashable, kind: str, id_: str) -> TreeStep | None:
        """Return the step of this kind and id from `node`, a node on the path to some operator; None if there is none.

        This is faster than to look for it among `steps`, for which all dead ends have to be found.
        """
        ...

    def path(self, operator: PGraph) -> tuple[TreeStep, ...]:
        """Return the canonical steps from the root to a known operator.

        Raises a SynoError that names the rule or option that excludes the operator if it is not in the space.
        """
        ...

    def name(self, node: Hashable) -> str:
        """Return a text that tells the node from all others, the same in every process."""
        ...

    def fingerprint(self, operator: PGraph) -> str:
        """Return a text that is equal for operators with equal meaning."""
        ...


class Weighing(Protocol):
    """Tells how many operators lie behind a step."""

    def __call__(self, draft: TreeDraft, taken: Set[str]) -> float:
        """Return the weight of a step among the steps of its node, at least 0, without the operators of these fingerprints."""
        ...


@runtime_checkable
class WeighedTree(Tree, Protocol):
    """A tree that knows how much lies behind its steps. Random walks then draw steps in proportion to it."""

    def weighing(self) -> Weighing:
        """Return the weights, for a caller of its own whose operators that are taken only become more."""
        ...


@runtime_checkable
class GuidedTree(Tree, Protocol):
    """A tree with a smaller one inside it, where random walks find operators sooner."""

    @property
    def guide(self) -> Tree | None:
        """The guide: a subtree with the same root, to which most random walks keep; None without a requirement."""
        ...

    @property
    def unguided(self) -> float:
        """The share of random walks that does not keep to the guide, so that walks may find every operator."""
        ...


def actions(steps: Sequence[TreeStep]) -> tuple[Action, ...]:
    """Return the path of these steps as it is stored."""
    return tuple(Action(step.kind, step.id) for step in steps)

"""The interface of a search space: a tree of partial operators with transpositions (branches that meet again).

Policies and studies access a space of operators only through these protocols. Tests use small explicit trees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import NamedTuple, Protocol, runtime_checkable

from syno.ir.graph import PGraph


class Action(NamedTuple):
    """A step without its nodes. It is the same in all processes, so paths are stored as actions.

    Attributes:
        kind: the primitive, "Contraction" or "Finalize".
        id: content id of what the step adds.
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
    """A step of the search tree: an action taken at a node. One operation has one id, whichever node it is added to.

    Attributes:
        node: the node after the step.
        operator: the complete operator if the step is a Finalize, else None.
    """

    @property
    def node(self) -> Hashable:  # noqa: D102  (documented in the class)
        ...

    @property
    def operator(self) -> PGraph | None:  # noqa: D102
        ...


class TreeDraft(ActionLike, Protocol):
    """A step that has not been evaluated yet: it may be a dead end."""

    @property
    def look(self) -> Callable[[], TreeStep | None]:
        """The evaluation: a function that returns the step, or None for a dead end."""
        ...


@runtime_checkable
class Tree(Protocol):
    """A space of operators, built step by step. Nodes are hashable; they have no order.

    Independent steps may be taken in any order and lead to one node, so the space is a directed acyclic graph.
    """

    @property
    def root(self) -> Hashable:
        """The initial node: only the output's axes."""
        ...

    def steps(self, node: Hashable) -> Sequence[TreeStep]:
        """Return all steps from `node` that are not known to be dead ends, in an order that is the same in all processes.

        () at complete operators and at dead ends. Later calls may return fewer steps, once more dead ends are known.
        """
        ...

    def drafts(self, node: Hashable) -> Iterable[TreeDraft]:
        """Return drafts of all `steps` from `node`, in any order, including some dead ends.

        This is faster than `steps` for a caller that needs few steps: each draft is evaluated separately.
        """
        ...

    def step(self, node: Hashable, kind: str, id_: str) -> TreeStep | None:
        """Return the step of this kind and id from `node`, a node on the path to some operator; None if there is none.

        This is faster than a look-up among `steps`, for which all dead ends have to be found.
        """
        ...

    def path(self, operator: PGraph) -> tuple[TreeStep, ...]:
        """Return the canonical steps from the root to a known operator.

        Raises a SynoError that names the rule or option that excludes the operator if it is not in the space.
        """
        ...

    def name(self, node: Hashable) -> str:
        """Return a unique name of the node, the same in all processes."""
        ...

    def fingerprint(self, operator: PGraph) -> str:
        """Return a text that is equal for operators that compute the same function."""
        ...


class Weighing(Protocol):
    """A function that weighs steps by the number of operators behind them."""

    def __call__(self, draft: TreeDraft, taken: Set[str]) -> float:
        """Return the weight of a step among the steps of its node, at least 0.

        Operators with fingerprints in `taken` do not count.
        """
        ...


@runtime_checkable
class WeighedTree(Tree, Protocol):
    """A tree that knows the number of operators behind its steps. Random walks draw steps in proportion to it."""

    def weighing(self) -> Weighing:
        """Return a weighing for one caller, whose set `taken` of operators only grows."""
        ...


@runtime_checkable
class GuidedTree(Tree, Protocol):
    """A tree with a guide: a subtree in which random walks find operators sooner."""

    @property
    def guide(self) -> Tree | None:
        """The guide: a subtree with the same root, to which most random walks keep; None without a requirement."""
        ...

    @property
    def unguided(self) -> float:
        """The share of random walks outside of the guide, so that every operator can be found."""
        ...


def actions(steps: Sequence[TreeStep]) -> tuple[Action, ...]:
    """Return the steps of a path as actions, for storage."""
    return tuple(Action(step.kind, step.id) for step in steps)

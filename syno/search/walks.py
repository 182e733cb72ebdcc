"""Random walks: completions of partial operators that avoid dead ends and operators that were proposed before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from syno.base.errors import SpecError
from syno.search.tree import GuidedTree, Tree, TreeDraft, TreeStep, WeighedTree

T = TypeVar("T")

LIMIT = 20_000  # partial operators to visit before operators count as too rare


class Draws:
    """Independent uniform random numbers, one for each name.

    A tree drops steps once they are known to be dead ends. With a sequential generator, all later steps would then get other
    numbers. A number that is derived from the step's own id stays the same, whichever other steps exist. Equal keys give equal
    numbers in all processes.
    """

    def __init__(self, *key: object) -> None:
        self._key = blake2b("\0".join(map(str, key)).encode(), digest_size=16).digest()

    def of(self, name: str) -> float:
        """Return the random number for `name`, in [0, 1)."""
        digest = blake2b(name.encode(), key=self._key, digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)

    def below(self, name: str) -> Draws:
        """Return independent draws for the subproblem `name`."""
        return Draws(self._key.hex(), name)

    def order(self, items: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """Return the items in random order; the relative order of two items does not depend on the other items."""
        return sorted(items, key=lambda item: (self.of(name(item)), name(item)))

    def weighed_order(self, items: Iterable[T], name: Callable[[T], str], weight: Callable[[T], float]) -> list[T]:
        """Return the items in the order of weighted random sampling without replacement; items of weight 0 come last."""

        def arrival(
            item: T,
        ) -> float:  # exponential clocks: each is the first with a probability in proportion to its rate
            rate = weight(item)
            return -math.log1p(-self.of(name(item))) / rate if rate > 0 else math.inf

        return sorted(items, key=lambda item: (arrival(item), name(item)))

    def generator(self) -> random.Random:
        """Return a sequential generator, for draws that do not depend on steps that may be dropped."""
        return random.Random(self._key.hex())


@dataclass(frozen=True)
class Patience:
    """Limits of the search below a node.

    Attributes:
        nodes: total number of partial operators to visit.
        share: largest share of the remaining visits below one step, so that a deep dead end does not use up all visits.
    """

    nodes: int
    share: float


SHORT = Patience(300, 0.1)
LONG = Patience(3000, 0.5)
LEAST = 3  # least number of visits below a step
OF_GUIDE = "guide "  # prefix of names of nodes that are closed in the guide


class Walks:
    """Random walks from nodes of a tree to operators that were not proposed yet.

    A walk descends in a random order of kinds, then of steps of one kind. If no operator is left below a step, or none was
    found in time, it backtracks to the next step. So if all dead ends are shallow, its distribution is that of a walk that
    knows them beforehand, and it finds even the last operator of a small tree. A node that is proven to have no operators left
    is "closed" and never visited again. In a `WeighedTree`, steps are drawn in proportion to the number of operators behind
    them. In a `GuidedTree`, most walks search the guide first.

    Source: hierarchical sampling of final nodes in the published system, with backtracking in place of rejection.
    """

    def __init__(self, tree: Tree, limit: int = LIMIT) -> None:
        self.tree = tree
        self.limit = limit
        self._weighing = tree.weighing() if isinstance(tree, WeighedTree) else None
        self.taken: set[str] = set()  # fingerprints of proposed operators
        self._closed: set[Hashable] = set()  # only grows, since `taken` only grows
        self._newly_closed: list[Hashable] = []  # closed nodes that other workers do not know yet
        self._heard: set[str] = set()  # names of nodes that other workers have closed
        self._fingerprints: dict[Hashable, str] = {}
        self._left = 0  # nodes that may still be visited
        self._given_up: set[Hashable] = set()  # nodes below which this walk ran out of visits
        guide = tree.guide if isinstance(tree, GuidedTree) else None
        self._guide = None if guide is None else Walks(guide, limit)
        self._unguided = tree.unguided if isinstance(tree, GuidedTree) else 1.0
        if self._guide is not None:
            self._guide.taken, self._guide._fingerprints = self.taken, self._fingerprints

    def has_more(self, node: Hashable) -> bool:
        """Return whether any step from `node` leads to a node that is not closed."""
        checked = (draft.look() for draft in self.tree.drafts(node))
        return any(step is not None and not self.is_closed(step.node) for step in checked)

    def is_closed(self, node: Hashable) -> bool:
        """Return whether the node is known to have no operators left."""
        if node in self._closed:
            return True
        if not self._heard or self.tree.name(node) not in self._heard:
            return False
        self._closed.add(node)
        return True

    def close(self, node: Hashable) -> None:
        """Record that the node has no operators left."""
        self._closed.add(node)
        self._newly_closed.append(node)

    @property
    def found_closed(self) -> list[str]:
        """Names of the nodes that this worker has closed, and not yet passed to `hear_closed`."""
        of_guide = self._guide.found_closed if self._guide is not None else []
        return [*map(self.tree.name, self._newly_closed), *(OF_GUIDE + name for name in of_guide)]

    def hear_closed(self, names: Iterable[str]) -> None:
        """Mark nodes as closed that another worker has closed. Operators that were taken there must be taken here, too."""
        heard = {*names}
        if self._guide is not None:
            self._guide.hear_closed(name.removeprefix(OF_GUIDE) for name in heard)
            heard = {name for name in heard if not name.startswith(OF_GUIDE)}
        self._heard |= heard
        if self._newly_closed and heard:
            self._newly_closed = [node for node in self._newly_closed if self.tree.name(node) not in heard]

    def fingerprint(self, step: TreeStep) -> str:
        """Return the fingerprint of the operator of a Finalize step. Cached."""
        assert step.operator is not None
        fingerprint = self._fingerprints.get(step.node)
        if fingerprint is None:
            fingerprint = self._fingerprints[step.node] = self.tree.fingerprint(step.operator)
        return fingerprint

    def complete(self, node: Hashable, draws: Draws, patience: Patience = SHORT) -> tuple[TreeStep, ...] | None:
        """Return random steps from `node` to an operator that is not taken.

        None if there is none (the node is then closed), or if none was found in time (the node is not closed).
        """
        guided = self._guided(node, draws, patience)
        if guided is not None:
            return guided
        self._left = patience.nodes
        self._given_up.clear()
        return self._complete(node, draws, patience.share)

    def complete_after(self, step: TreeStep, draws: Draws, patience: Patience = SHORT) -> tuple[TreeStep, ...] | None:
        """Return random steps after `step` to an operator that is not taken; () if the step itself completes it."""
        guided = self._guided(step.node, draws.below(step.id), patience) if step.operator is None else None
        if guided is not None:
            return guided
        self._left = patience.nodes
        self._given_up.clear()
        return self._below(step, draws, patience.share)

    def anywhere(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return random steps from the root to an operator that is not taken; None if there is none.

        Raises SpecError if operators are too rare to be found.
        """
        root = self.tree.root
        for patience in (SHORT, LONG, Patience(self.limit, 1.0)):
            path = self.complete(root, draws, patience) if patience.nodes <= self.limit else None
            if path is not None or self.is_closed(root):
                return path
        raise SpecError(
            f"no operator found that is not proposed yet, among {self.limit} partial operators looked at; the space has next "
            "to none. Loosen its budgets or options, raise its depth, or stop here"
        )

    def _guided(self, node: Hashable, draws: Draws, patience: Patience) -> tuple[TreeStep, ...] | None:
        """Return random steps within the guide to an operator that is not taken; None if this walk is not guided."""
        if self._guide is None or draws.of("guide") < self._unguided:
            return None
        return self._guide.complete(node, draws, patience)

    def _complete(self, node: Hashable, draws: Draws, share: float) -> tuple[TreeStep, ...] | None:
        if self.is_closed(node) or node in self._given_up:
            return None
        self._left -= 1
        nothing_left, before = True, len(self._newly_closed)
        for step in self._shuffled(node, draws):
            if self._left <= 0:
                nothing_left = False
                break
            left, spent = self._left, max(LEAST, int(self._left * share))
            self._left = spent
            rest = self._below(step, draws, share)
            self._left += left - spent
            if rest is not None:
                return (step, *rest)
            nothing_left &= self.is_closed(step.node)
        if nothing_left:
            del self._newly_closed[before:]  # closed nodes below a closed node need not be passed on
            self.close(node)
        else:
            self._given_up.add(node)
        return None

    def _shuffled(self, node: Hashable, draws: Draws) -> Iterator[TreeStep]:
        """Yield the steps from a node that are not closed, in random order.

        A draft is evaluated only when its step is requested.
        """
        for draft in self._ordered(self.tree.drafts(node), draws):
            step = draft.look()
            if step is not None and not self.is_closed(step.node):
                yield step

    def _ordered(self, drafts: Iterable[TreeDraft], draws: Draws) -> Iterator[TreeDraft]:
        if self._weighing is not None:
            weighing, taken = self._weighing, self.taken
            yield from draws.weighed_order(drafts, lambda draft: draft.id, lambda draft: weighing(draft, taken))
            return
        by_kind: dict[str, list[TreeDraft]] = {}
        for draft in drafts:
            by_kind.setdefault(draft.kind, []).append(draft)
        for kind in draws.order(by_kind, lambda kind: kind):
            yield from draws.order(by_kind[kind], lambda draft: draft.id)

    def _below(self, step: TreeStep, draws: Draws, share: float) -> tuple[TreeStep, ...] | None:
        if step.operator is None:
            return self._complete(step.node, draws.below(step.id), share)
        if self.fingerprint(step) not in self.taken:
            return ()
        self.close(step.node)
        return None

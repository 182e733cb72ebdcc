"""Random completions of partial operators that avoid dead ends and operators proposed already."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from syno.base.errors import SpecError
from syno.search.draws import Draws
from syno.search.tree import Draft, Step, Tree

LIMIT = 20_000


@dataclass(frozen=True)
class Patience:
    """How long to look below a node before going elsewhere.

    Attributes:
        nodes: partial operators to look at in all.
        share: what part of those that are left may be spent below one step, so that a dead end without an end in sight doesn't
            use up all.
    """

    nodes: int
    share: float


SHORT = Patience(300, 0.1)
LONG = Patience(3000, 0.5)
LEAST = 3  # to be spent below a step, however little is left


class Walks:
    """Random ways from nodes of a tree to operators that nobody has proposed yet.

    A completion goes down in a random order of kinds, then of steps of one kind. Where there is nothing left, or nothing
    found for too long, it turns back to the next. So where all dead ends are shallow it draws as a walk does that knows them
    beforehand, and it finds the last operator of a small tree. What is proven to have nothing left is never looked at again.

    Source: hierarchical sampling of final nodes in the published system, with backtracking in place of rejection.
    """

    def __init__(self, tree: Tree, limit: int = LIMIT) -> None:
        self.tree = tree
        self.limit = limit
        self.taken: set[str] = set()  # fingerprints
        self._closed: set[Hashable] = set()  # nodes with nothing left below; it only grows, as `taken` does
        self._found: list[Hashable] = []  # of these, what nobody else has heard of
        self._heard: set[str] = set()  # names of nodes that others have closed
        self._fingerprints: dict[Hashable, str] = {}
        self._left = 0  # nodes that may still be looked at
        self._given_up: set[Hashable] = set()  # in this completion

    def has_more(self, node: Hashable) -> bool:
        """Whether any step from `node` is not known to have nothing left below it."""
        looked = (draft.look() for draft in self.tree.drafts(node))
        return any(step is not None and not self.is_closed(step.node) for step in looked)

    def is_closed(self, node: Hashable) -> bool:
        """Whether the node is known to have nothing left below it."""
        if node in self._closed:
            return True
        if not self._heard or self.tree.name(node) not in self._heard:
            return False
        self._closed.add(node)
        return True

    def close(self, node: Hashable) -> None:
        """Note that there is nothing left below the node."""
        self._closed.add(node)
        self._found.append(node)

    @property
    def found_closed(self) -> list[str]:
        """Names of the nodes that were closed here, since others last heard of it."""
        return list(map(self.tree.name, self._found))

    def hear_closed(self, names: Iterable[str]) -> None:
        """Take note of nodes that have been closed, here or by others; what these knew as taken has to be taken here too."""
        heard = {*names}
        self._heard |= heard
        if self._found and heard:
            self._found = [node for node in self._found if self.tree.name(node) not in heard]

    def fingerprint(self, step: Step) -> str:
        """The fingerprint of the operator that a Finalize leads to."""
        assert step.operator is not None
        found = self._fingerprints.get(step.node)
        if found is None:
            found = self._fingerprints[step.node] = self.tree.fingerprint(step.operator)
        return found

    def complete(self, node: Hashable, draws: Draws, patience: Patience = SHORT) -> tuple[Step, ...] | None:
        """Random steps from `node` to an operator that is not taken.

        None if there is none (then the node is closed), or if none was found with such patience (then not).
        """
        self._left = patience.nodes
        self._given_up.clear()
        return self._complete(node, draws, patience.share)

    def complete_after(self, step: Step, draws: Draws, patience: Patience = SHORT) -> tuple[Step, ...] | None:
        """Random steps after `step` to an operator that is not taken; () if the step itself is such an operator."""
        self._left = patience.nodes
        self._given_up.clear()
        return self._below(step, draws, patience.share)

    def anywhere(self, draws: Draws) -> tuple[Step, ...] | None:
        """Random steps from the root to an operator that is not taken; None if there is none.

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

    def _complete(self, node: Hashable, draws: Draws, share: float) -> tuple[Step, ...] | None:
        if self.is_closed(node) or node in self._given_up:
            return None
        self._left -= 1
        nothing_left, before = True, len(self._found)
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
            del self._found[before:]  # what is below it goes without saying
            self.close(node)
        else:
            self._given_up.add(node)
        return None

    def _shuffled(self, node: Hashable, draws: Draws) -> Iterator[Step]:
        """The steps that are not closed. Only those that are asked for are looked at, which leaves their order as it is."""
        by_kind: dict[str, list[Draft]] = {}
        for draft in self.tree.drafts(node):
            by_kind.setdefault(draft.kind, []).append(draft)
        for kind in draws.order(by_kind, lambda kind: kind):
            for draft in draws.order(by_kind[kind], lambda draft: draft.id):
                step = draft.look()
                if step is not None and not self.is_closed(step.node):
                    yield step

    def _below(self, step: Step, draws: Draws, share: float) -> tuple[Step, ...] | None:
        if step.operator is None:
            return self._complete(step.node, draws.below(step.id), share)
        if self.fingerprint(step) not in self.taken:
            return ()
        self.close(step.node)
        return None

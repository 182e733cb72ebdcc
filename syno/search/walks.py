"""Random completions of partial operators that avoid dead ends and operators proposed already."""

from __future__ import annotations

from collections.abc import Hashable

from syno.errors import SpecError
from syno.search.draws import Draws
from syno.search.tree import Step, Tree

LIMIT = 3000  # states looked at in one completion


class Walks:
    """Random ways from nodes of a tree to operators that nobody has proposed yet.

    A completion goes down in a random order of kinds, then of steps of one kind, and turns back where there is nothing
    left. So it draws as a walk does that knows all dead ends beforehand, it is a function of the draws and of the
    operators taken alone (not of what the tree happens to know), and it returns nothing only if nothing is left.

    Source: hierarchical sampling of final nodes in the published system, with backtracking in place of rejection.
    """

    def __init__(self, tree: Tree, limit: int = LIMIT) -> None:
        self.tree = tree
        self.limit = limit
        self.taken: set[str] = set()  # fingerprints
        self.closed: set[Hashable] = set()  # nodes with nothing left below; it only grows, as `taken` does
        self._fingerprints: dict[Hashable, str] = {}
        self._looked_at = 0

    def alive(self, node: Hashable) -> list[Step]:
        """The steps from `node` that are not known to have nothing left below them."""
        return [step for step in self.tree.steps(node) if step.node not in self.closed]

    def fingerprint(self, step: Step) -> str:
        """The fingerprint of the operator that a Finalize leads to."""
        assert step.operator is not None
        found = self._fingerprints.get(step.node)
        if found is None:
            found = self._fingerprints[step.node] = self.tree.fingerprint(step.operator)
        return found

    def complete(self, node: Hashable, draws: Draws) -> tuple[Step, ...] | None:
        """Random steps from `node` to an operator that is not taken.

        None if there is none (then the node is closed), or none among the first `limit` states looked at (then not).
        """
        self._looked_at = 0
        return self._complete(node, draws)

    def complete_after(self, step: Step, draws: Draws) -> tuple[Step, ...] | None:
        """Random steps after `step` to an operator that is not taken; () if the step itself is such an operator."""
        self._looked_at = 0
        return self._below(step, draws)

    def _complete(self, node: Hashable, draws: Draws) -> tuple[Step, ...] | None:
        if node in self.closed:
            return None
        self._looked_at += 1
        by_kind: dict[str, list[Step]] = {}
        for step in self.alive(node):
            by_kind.setdefault(step.kind, []).append(step)
        for kind in draws.order(by_kind, lambda kind: kind):
            for step in draws.order(by_kind[kind], lambda step: step.id):
                if self._looked_at >= self.limit:
                    return None
                rest = self._below(step, draws)
                if rest is not None:
                    return (step, *rest)
        if self._looked_at < self.limit:
            self.closed.add(node)
        return None

    def _below(self, step: Step, draws: Draws) -> tuple[Step, ...] | None:
        if step.operator is None:
            return self._complete(step.node, draws.below(step.id))
        if self.fingerprint(step) not in self.taken:
            return ()
        self.closed.add(step.node)
        return None

    def explain_giving_up(self) -> SpecError:
        """The error for a tree whose operators cannot be found."""
        return SpecError(
            f"no operator found that is not proposed yet, among {self.limit} partial operators looked at; the space has next "
            "to none. Loosen its budgets or options, raise its depth, or stop here"
        )

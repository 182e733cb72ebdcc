"""Descriptions of operators as rows of numbers, for policies with a model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b

from syno.base.errors import SynoError
from syno.ir.graph import PGraph
from syno.search.policies.contract import Candidate
from syno.search.tree import Action, Tree
from syno.space.features import OperatorFeatures
from syno.space.spec import OperatorSpec

BUCKETS = 64  # into which the steps of a path are counted


class Descriptions:
    """Describes the operators of a tree, by their features if the tree has a spec, else by the steps of their paths."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        spec = getattr(tree, "spec", None)
        self.features = OperatorFeatures(spec) if isinstance(spec, OperatorSpec) else None
        self._known: dict[tuple[Action, ...], tuple[float, ...]] = {}

    def of(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the numbers of an operator. If the candidate knows its path only, it is looked for in the tree."""
        found = self._known.get(candidate.path)
        if found is None:
            found = self._known[candidate.path] = self._described(candidate)
        return found

    def of_operator(self, operator: PGraph) -> tuple[float, ...] | None:
        """Return the numbers of an operator of another study; None if it does not fit the layers of this one."""
        try:
            return None if self.features is None else self.features(operator)
        except SynoError:
            return None

    def _described(self, candidate: Candidate) -> tuple[float, ...]:
        if self.features is None:
            return by_steps(candidate.path)
        operator = candidate.parsed() or self._found(candidate.path)
        found = None if operator is None else self.of_operator(operator)
        return found or (0.0,) * len(self.features.columns)

    def _found(self, path: Sequence[Action]) -> PGraph | None:
        node: Hashable = self.tree.root
        operator = None
        for action in path:
            step = self.tree.step(node, *action)
            if step is None:
                return None
            node, operator = step.node, step.operator
        return operator


def by_steps(path: Sequence[Action]) -> tuple[float, ...]:
    """Return how many steps of a path are in each bucket of ids, without the Finalize."""
    counts = [0.0] * BUCKETS
    for action in path[:-1]:
        counts[blake2b(action.id.encode(), digest_size=2).digest()[0] % BUCKETS] += 1
    return tuple(counts)

"""Descriptions of operators as rows of numbers, for policies with a model."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from hashlib import blake2b

from syno.base.errors import SynoError
from syno.ir.graph import PGraph
from syno.lower.pytorch.statements import estimated_time
from syno.search.policies.contract import Candidate
from syno.search.tree import Action, Tree
from syno.space.features import OperatorFeatures
from syno.space.spec import OperatorSpec

BUCKETS = 64  # into which the steps of a path are counted


class Descriptions:
    """Describes the operators of a tree, by their features if the tree has a spec, else by the steps of their paths.

    Attributes:
        features: of the tree's spec; None if it has none.
        is_timed: whether the last number is the logarithm of the time that the operator is estimated to take in all layers of
            the spec. An estimate takes about 15 ms, so it is made on request only.
    """

    def __init__(self, tree: Tree, *, timed: bool = False) -> None:
        self.tree = tree
        spec = getattr(tree, "spec", None)
        self.features = OperatorFeatures(spec) if isinstance(spec, OperatorSpec) else None
        self.is_timed = timed and self.features is not None
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
            if self.features is None:
                return None
            found = self.features(operator)
            return (*found, math.log(estimated_time(operator, self.features.spec.valuations))) if self.is_timed else found
        except SynoError:
            return None

    def _described(self, candidate: Candidate) -> tuple[float, ...]:
        if self.features is None:
            return by_steps(candidate.path)
        operator = candidate.parsed() or self._found(candidate.path)
        found = None if operator is None else self.of_operator(operator)
        return found or (0.0,) * (len(self.features.columns) + self.is_timed)

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

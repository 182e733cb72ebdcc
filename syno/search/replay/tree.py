"""The search tree of a table's operators: every path on which the space reaches one of them, computed beforehand."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from syno.base.errors import SpecError, UnreachableError
from syno.ir.graph import PGraph
from syno.search.replay.entries import TableEntry
from syno.space.spec import OperatorSpec

ROOT = 0


@dataclass(frozen=True)
class TableStep:
    """A step of the tree, and its draft: nothing is left to check.

    Attributes:
        kind, id: those of the step in the space.
        node: the number of the node that it leads to.
        entry: the operator in the table if the step is a Finalize, else None.
    """

    kind: str
    id: str
    node: int
    entry: TableEntry | None = field(default=None, compare=False, repr=False)

    @property
    def operator(self) -> PGraph | None:
        """The complete operator if the step is a Finalize, else None."""
        return None if self.entry is None else self.entry.operator

    def look(self) -> TableStep:
        """Return this step."""
        return self


class TableTree:
    """The part of a space that leads to the operators of a table. It keeps the contract of `syno.search.tree.Tree`.

    Nodes are numbers; `ROOT` is the output. An operator that means the same as one of the table, but is another graph, is not
    in the tree.

    Args:
        operators: the operators by their nodes.
        steps: all steps, as (node before, kind, id, node after).
        only: ids of the operators to keep; by default all.
        spec: the spec of the operators.

    Attributes:
        root: the number of the root.
        spec: the spec of the operators, for policies that look at their costs; None where it is not known.
        operators: the operators of the tree by their ids.
    """

    root: int = ROOT

    def __init__(
        self,
        operators: Mapping[int, TableEntry],
        steps: Iterable[tuple[int, str, str, int]],
        only: Collection[str] | None = None,
        spec: OperatorSpec | None = None,
    ) -> None:
        self.spec = spec
        kept = {node: entry for node, entry in operators.items() if only is None or entry.id in only}
        self.operators: dict[str, TableEntry] = {entry.id: entry for entry in kept.values()}
        self._node = {entry.id: node for node, entry in kept.items()}
        before: dict[int, list[tuple[int, TableStep]]] = {}
        for start, kind, id_, end in steps:
            before.setdefault(end, []).append((start, TableStep(kind, id_, end, kept.get(end))))
        onwards: dict[int, list[TableStep]] = {}
        self._first: dict[int, tuple[int, TableStep]] = {}  # for each node, a node before it and the step between them
        waiting, seen = list(kept), set(kept)
        while waiting:
            node = waiting.pop()
            for start, step in before.get(node, ()):
                onwards.setdefault(start, []).append(step)
                if start not in seen:
                    seen.add(start)
                    waiting.append(start)
            if node in before:
                self._first[node] = min(before[node], key=lambda found: (found[0], found[1].id))
        self._steps = {node: tuple(sorted(found, key=lambda step: (step.kind, step.id))) for node, found in onwards.items()}
        self._by_id = {node: {(step.kind, step.id): step for step in found} for node, found in self._steps.items()}

    def steps(self, node: Hashable) -> tuple[TableStep, ...]:
        """Return all steps from a node, sorted by kind and id; () at an operator."""
        assert isinstance(node, int)
        return self._steps.get(node, ())

    drafts = steps

    def step(self, node: Hashable, kind: str, id_: str) -> TableStep | None:
        """Return the step of this kind and id from a node; None if there is none."""
        assert isinstance(node, int)
        return self._by_id.get(node, {}).get((kind, id_))

    def path(self, operator: PGraph) -> tuple[TableStep, ...]:
        """Return steps from the root to an operator. Raises UnreachableError if it is not in the tree."""
        if operator.id not in self._node:
            raise UnreachableError(
                f"{operator.name} ({operator.id}) is none of the {len(self.operators)} operators of the table's tree; "
                "only these can be replayed"
            )
        found, node = list[TableStep](), self._node[operator.id]
        while node != ROOT:
            node, step = self._first[node]
            found.append(step)
        return tuple(reversed(found))

    def name(self, node: Hashable) -> str:
        """Return the number of a node as text."""
        return str(node)

    def fingerprint(self, operator: PGraph) -> str:
        """Return the fingerprint of an operator of the table. Raises SpecError if it is not in the tree."""
        entry = self.operators.get(operator.id)
        if entry is None:
            raise SpecError(
                f"{operator.name} ({operator.id}) is none of the table's operators, so its fingerprint is not known"
            )
        return entry.fingerprint

"""A collection of operators of which no two mean the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from syno.ir.graph import PGraph


class Distinct:
    """Operators of which no two mean the same, in the order in which they were added.

    Fingerprints are found only of those whose glances are equal: few of the operators that walks end in.

    Args:
        glance: returns a text that is equal for operators with equal fingerprints.
        fingerprint: returns a text that is equal for operators that mean the same.
        operators: to begin with.
    """

    def __init__(
        self, glance: Callable[[PGraph], str], fingerprint: Callable[[PGraph], str], operators: Iterable[PGraph] = ()
    ) -> None:
        self._glance, self._fingerprint = glance, fingerprint
        self._operators: list[PGraph] = []
        self._alike: dict[str, PGraph | set[str]] = {}  # by glance: the only operator, or the fingerprints of several
        for operator in operators:
            self.add(operator)

    def add(self, operator: PGraph) -> bool:
        """Add an operator unless one that means the same is there. Return whether it was added."""
        name = self._glance(operator)
        known = self._alike.get(name)
        if known is None:
            self._alike[name] = operator
        else:
            if not isinstance(known, set):
                known = self._alike[name] = {self._fingerprint(known)}
            own = self._fingerprint(operator)
            if own in known:
                return False
            known.add(own)
        self._operators.append(operator)
        return True

    def __len__(self) -> int:
        return len(self._operators)

    def __iter__(self) -> Iterator[PGraph]:
        return iter(self._operators)

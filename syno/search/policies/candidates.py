"""Operators as policies know them: candidates, and the proposals that policies make."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.search.tree import Action


@dataclass(frozen=True)
class Candidate:
    """An operator as a policy knows it.

    Attributes:
        path: the actions from the root to it, the last one a Finalize.
        fingerprint: equal for operators with equal meaning.
        text: of the operator, if known.
    """

    path: tuple[Action, ...]
    fingerprint: str
    text: str | None = field(default=None, compare=False, repr=False, kw_only=True)

    def parsed(self) -> PGraph | None:
        """Return the operator; None if its text is not known. This is faster than taking the steps of its path."""
        return None if self.text is None else parse_stored(self.text)


@dataclass(frozen=True)
class Proposal(Candidate):
    """A candidate with its operator, to be evaluated."""

    operator: PGraph

    def parsed(self) -> PGraph:
        """Return the operator."""
        return self.operator


class Exhausted(Enum):
    """The answer of a policy whose tree has no operator left. It is final, even while trials are running."""

    EXHAUSTED = "exhausted"


EXHAUSTED: Final = Exhausted.EXHAUSTED

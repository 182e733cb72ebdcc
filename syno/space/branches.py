"""The steps that can follow a state, each looked at once however often walks come by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from syno.ir.graph import PGraph
from syno.space.state import State
from syno.space.steps import CandidateStep


class Branch:
    """A candidate step, and the state after it once somebody has asked for that.

    Attributes:
        kind: of the step.
        candidate: the step.
    """

    __slots__ = ("_child", "_id", "_is_known", "candidate", "kind")

    def __init__(self, candidate: CandidateStep) -> None:
        self.kind, self.candidate = candidate.kind, candidate
        self._child: State | None = None
        self._is_known = False
        self._id = ""

    @property
    def id(self) -> str:
        """The content id of the step."""
        self._id = self._id or self.candidate.id
        return self._id

    def child(self, is_feasible: Callable[[State], bool]) -> State | None:
        """Return the state after the step if it is feasible, else None. `is_feasible` is asked once."""
        if not self._is_known:
            child = self.candidate.taken()
            self._child, self._is_known = child if is_feasible(child) else None, True
        return self._child


class Branches:
    """The branches of one state, made as far as somebody goes through them."""

    __slots__ = ("_made", "_more", "operators")

    def __init__(self, operators: list[PGraph], candidates: Iterator[CandidateStep]) -> None:
        self.operators = operators
        self._made: list[Branch] = []
        self._more = candidates

    def __iter__(self) -> Iterator[Branch]:
        made = self._made
        place = 0
        while True:
            while place < len(made):
                yield made[place]
                place += 1
            following = next(self._more, None)
            if following is None:
                return
            made.append(Branch(following))

    def all(self) -> list[Branch]:
        """Return all branches; callers do not change the list."""
        self._made.extend(map(Branch, self._more))
        return self._made


def taken_out(options: list[Branch | PGraph], random: Random) -> Branch | PGraph:
    """Remove one of the options at random, and return it."""
    place = random.randrange(len(options))
    options[place], options[-1] = options[-1], options[place]
    return options.pop()

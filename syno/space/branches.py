"""The steps that can follow a state, each looked at once however often walks come by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from random import Random

from syno.ir.graph import PGraph
from syno.space.state import State
from syno.space.steps import CONTRACTION, EXPAND, MERGE, REDUCE, SHIFT, SPLIT, STRIDE, UNFOLD, CandidateStep

# Of the Unfolds and Shifts that rules allow two of three lead on in ResNet-18's space, of the Splits one of forty.
LIKELY_FIRST = (UNFOLD, SHIFT, REDUCE, STRIDE, EXPAND, MERGE, CONTRACTION, SPLIT)


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

    def child(self, after: Callable[[CandidateStep], State | None]) -> State | None:
        """Return the state after the step if it is feasible, else None. `after`, which finds it, is asked once."""
        if not self._is_known:
            self._child, self._is_known = after(self.candidate), True
        return self._child


class Branches:
    """The branches of one state, made as far as somebody goes through them.

    Attributes:
        operators: the complete operators that the state is.
    """

    __slots__ = ("_made", "_more", "operators")

    def __init__(self, operators: list[PGraph], candidates: Mapping[str, Iterator[CandidateStep]]) -> None:
        self.operators = operators
        self._made: dict[str, list[Branch]] = {kind: [] for kind in candidates}
        self._more = candidates

    def __iter__(self) -> Iterator[Branch]:
        return chain.from_iterable(map(self._of_kind, self._made))

    def likely_first(self) -> Iterator[Branch]:
        """Yield all branches, first those of the kinds that lead on most often."""
        # All kinds, also those that LIKELY_FIRST does not name: a kind left out would never be looked at, and its operators
        # would be missing without a word.
        order = dict.fromkeys((*LIKELY_FIRST, *self._made))
        return chain.from_iterable(self._of_kind(kind) for kind in order if kind in self._made)

    def by_kind(self) -> dict[str, list[Branch | PGraph]]:
        """Return all branches by their kind, without kinds that have none."""
        for kind, made in self._made.items():
            made.extend(map(Branch, self._more[kind]))
        return {kind: [*made] for kind, made in self._made.items() if made}

    def _of_kind(self, kind: str) -> Iterator[Branch]:
        made, more = self._made[kind], self._more[kind]
        for place in count():
            if place == len(made):
                following = next(more, None)
                if following is None:
                    return
                made.append(Branch(following))
            yield made[place]


def taken_out(options: list[Branch | PGraph], random: Random) -> Branch | PGraph:
    """Remove one of the options at random, and return it."""
    place = random.randrange(len(options))
    options[place], options[-1] = options[-1], options[place]
    return options.pop()

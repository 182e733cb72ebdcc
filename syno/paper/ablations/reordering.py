"""Search for an order of a partial operator's steps that all rules accept.

Steps that do not depend on each other commute, and some rules accept one order of them only. So a graph is canonical if
some order of its steps is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syno.ir.dim import Dim
from syno.space.rules import RuleSet
from syno.space.space import Space
from syno.space.state import State
from syno.space.steps import CONTRACTION, REDUCE, CandidateStep

Image = dict[Dim, Dim]  # dims of the graph as it was built, to those of another order (weights are numbered anew)


def is_canonical(space: Space, steps: Sequence[CandidateStep], rules: RuleSet) -> bool:
    """Return whether the rules accept some order of these steps, taken one by one from the root of the space.

    Args:
        space: a space of the spec; its own rules play no part.
        steps: the steps of one graph, in the order in which it was built.
        rules: the rules that each step must pass.
    """
    return _Orders(space, steps, rules).accepted(space.root, frozenset(), (), {dim: dim for dim in space.root.data})


class _Orders:
    """A depth-first search over the sets of steps taken so far, each tried once."""

    def __init__(self, space: Space, steps: Sequence[CandidateStep], rules: RuleSet) -> None:
        self.space, self.steps, self.rules = space, steps, rules
        self.tops = [_new_dims(step.state, step.taken()) for step in steps]
        self.failed: set[tuple[frozenset[int], tuple[int, ...]]] = set()

    def accepted(self, state: State, done: frozenset[int], weights: tuple[int, ...], image: Image) -> bool:
        """Return whether the remaining steps can follow.

        Args:
            done: the steps taken so far, by their numbers.
            weights: the contractions among them, in order. A state depends on their order only.
            image: what has become of the dims that are there.
        """
        if len(done) == len(self.steps):
            return True
        if (done, weights) in self.failed:
            return False
        for index in self._ready(done, image):
            step = _moved(self.steps[index], state, image)
            if any(row.rejects(step) for row in self.rules.of(step.kind)):
                continue
            after = step.taken()
            grown = image | _matched(self.tops[index], _new_dims(state, after), image)
            numbered = (*weights, index) if step.kind == CONTRACTION else weights
            if self.accepted(after, done | {index}, numbered, grown):
                return True
        self.failed.add((done, weights))
        return False

    def _ready(self, done: frozenset[int], image: Image) -> list[int]:
        """Return the steps whose dims are there; of sums of one size only the first, as they are alike."""
        ready, sums = [], set()
        for index, step in enumerate(self.steps):
            if index in done or not all(dim in image for dim in step.dims):
                continue
            if step.kind == REDUCE:
                if step.size in sums:
                    continue
                sums.add(step.size)
            ready.append(index)
        return ready


def _new_dims(before: State, after: State) -> list[Dim]:
    known = set(before.data)
    return [dim for dim in after.data if dim not in known]


def _moved(step: CandidateStep, state: State, image: Image) -> CandidateStep:
    """Return the step on top of another state."""
    dims = [image[dim] for dim in step.dims]
    if step.kind == CONTRACTION:  # a set, in the order of the state
        dims = [dim for dim in state.data if dim in set(dims)]
    return replace(step, state=state, dims=tuple(dims), outer=frozenset(image[dim] for dim in step.outer))


def _matched(old: Sequence[Dim], new: Sequence[Dim], image: Image) -> Image:
    """Return which of the dims that a step has just made stands for which of those that it made at first."""

    def place(dim: Dim, moved: bool) -> tuple[int, tuple[Dim, ...]]:
        bottoms = () if dim.operation is None else dim.operation.bottoms
        return dim.position, bottoms if moved else tuple(image[below] for below in bottoms)

    found = {place(dim, True): dim for dim in new}
    return {dim: found[place(dim, False)] for dim in old}

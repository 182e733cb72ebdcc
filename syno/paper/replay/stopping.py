"""Stopping rules, replayed on complete trainings: the epochs that would have been trained, in their order.

A rule takes the values of trials after each epoch, or part of one (more is better), in the order of the trials, and returns
the epochs that one worker trains. `halving` is `study: stopping`, decision by decision; the others are Optuna's pruners and
milestones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import TypeAlias

import numpy as np

from syno.base.errors import SpecError, UnreachableError
from syno.ir.graph import PGraph
from syno.paper.replay.entries import TableEntry
from syno.search.halving import Rungs, as_step
from syno.search.tree import TreeDraft, Weighing
from syno.space.spec import OperatorSpec

# The search tree of a table's operators: every path on which the space reaches one of them, computed beforehand.


ROOT = 0


@dataclass(frozen=True)
class TableStep:
    """A step of the tree, which is also its own draft, since nothing is left to check.

    Attributes:
        kind, id: the kind and id of the step in the space.
        node: the number of the node that it leads to.
        place: the index of the step in the table's list of steps.
        entry: the operator in the table if the step is a Finalize, else None.
    """

    kind: str
    id: str
    node: int
    place: int = field(compare=False, repr=False)
    entry: TableEntry | None = field(default=None, compare=False, repr=False)

    @property
    def operator(self) -> PGraph | None:
        """The operator that the step completes if it is a Finalize, else None."""
        return None if self.entry is None else self.entry.operator

    def look(self) -> TableStep:
        """Return this step itself, which needs no further computation."""
        return self


class TableTree:
    """The part of a space that leads to the operators of a table. It keeps the contract of `syno.search.tree.Tree`.

    Nodes are numbers; `ROOT` is the output. Other graphs with the same meaning as an operator of the table are not in the tree.
    The table's operators are a sample of random walks in the whole space; so that walks in the tree find operators as often as
    those do, each operator that is not taken yet has the same probability (`weighing`).

    Args:
        operators: the operators by their nodes' numbers.
        steps: all steps, as (node before, kind, id, node after).
        only: ids of the operators to keep; by default all.
        spec: the spec of the operators.

    Attributes:
        root: the number of the root.
        spec: the spec of the operators, for policies that use costs; None if it is not known.
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
        for place, (start, kind, id_, end) in enumerate(steps):
            before.setdefault(end, []).append((start, TableStep(kind, id_, end, place, kept.get(end))))
        self._before = before
        onwards: dict[int, list[TableStep]] = {}
        self._first: dict[int, tuple[int, TableStep]] = {}  # a node before, and the step between
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

    def weighing(self) -> Weighing:
        """Return the weighting of steps by which random walks draw each operator not taken yet with equal probability."""
        return _Behind(self._flows)

    @cached_property
    def _flows(self) -> dict[str, list[tuple[int, int]]]:
        """The steps on all paths to each operator, by fingerprint, as (index of the step, share of the operator's probability).

        An operator's probability is divided equally among the steps that end in it, each step's share equally among the steps
        before it, and so on. Shares are integers, so that sums do not depend on their order.
        """
        flows: dict[str, list[tuple[int, Fraction]]] = {}
        for entry in self.operators.values():
            flow = flows.setdefault(entry.fingerprint, [])
            waiting = {self._node[entry.id]: Fraction(1)}
            while waiting:
                node = max(waiting, key=self._depth.__getitem__)
                part, steps = waiting.pop(node), self._before.get(node, [])
                for start, step in steps:
                    flow.append((step.place, part / len(steps)))
                    waiting[start] = waiting.get(start, Fraction(0)) + part / len(steps)
        whole = lcm(*(part.denominator for flow in flows.values() for _, part in flow))
        return {name: [(place, int(part * whole)) for place, part in flow] for name, flow in flows.items()}

    @cached_property
    def _depth(self) -> dict[int, int]:
        """The length in steps of the longest path from the root to each node."""
        found = {ROOT: 0}

        def depth(node: int) -> int:
            if node not in found:
                found[node] = 1 + max((depth(start) for start, _ in self._before[node]))
            return found[node]

        for node in self._before:
            depth(node)
        return found

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


class _Behind:
    """The weight of each step, by its index: the sum of the probability shares of operators behind it not taken yet."""

    def __init__(self, flows: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        self._flows = flows
        self._taken: set[str] = set()
        self._sums: dict[int, int] = {}
        for flow in flows.values():
            self._add(flow, 1)

    def __call__(self, draft: TreeDraft, taken: Set[str]) -> float:
        assert isinstance(draft, TableStep)
        if len(taken) != len(self._taken):
            for fingerprint in taken - self._taken:
                self._add(self._flows.get(fingerprint, ()), -1)
            self._taken |= taken
        return self._sums[draft.place]

    def _add(self, flow: Sequence[tuple[int, int]], sign: int) -> None:
        for place, part in flow:
            self._sums[place] = self._sums.get(place, 0) + sign * part


Curves: TypeAlias = Sequence[Sequence[float]]


@dataclass
class Work:
    """The epochs that one worker trained under a stopping rule.

    Attributes:
        epochs: number of epochs (or parts of epochs) trained for each trial.
        order: the trial of each epoch, in the order of training.
        pruned: trials that a pruner ended after their last epoch: trained completely, but without a result for the search.
    """

    epochs: list[int]
    order: list[int] = field(default_factory=list)
    pruned: set[int] = field(default_factory=set)

    def train(self, trial: int) -> int:
        """Train the next epoch of a trial. Return its number, from 1."""
        self.epochs[trial] += 1
        self.order.append(trial)
        return self.epochs[trial]


Rule: TypeAlias = Callable[[Curves], Work]


def halving(keep: Mapping[float, float], parts: int = 1) -> Rule:
    """Return the rule of successive halving with resumption: trials pause at rungs, and resume if they are among the best.

    Args:
        keep: share of all trials that continues, by the epoch of the rung, which may be fractional.
        parts: number of values in an epoch.
    """
    return brackets([keep], parts)


def brackets(keeps: Sequence[Mapping[float, float]], parts: int = 1) -> Rule:
    """Return the rule of successive halving in several brackets, as in Hyperband; trials are assigned to them in turn."""

    def work(curves: Curves) -> Work:
        scaled = [{as_step(step * parts): share for step, share in keep.items()} for keep in keeps]
        done, all_rungs = Work([0] * len(curves)), [Rungs(keep) for keep in scaled]
        paused: list[dict[int, float]] = [{} for _ in keeps]

        def run(trial: int, bracket: int) -> None:
            rungs = all_rungs[bracket]
            paused[bracket].pop(trial, None)
            while done.epochs[trial] < len(curves[trial]):
                epoch = done.train(trial)
                if epoch in rungs.keep:
                    rungs.enter(trial, epoch, curves[trial][epoch - 1])
                    if not rungs.goes_on(trial, epoch):
                        paused[bracket][trial] = epoch
                        return

        def resume() -> bool:
            for bracket, rungs in enumerate(all_rungs):
                if best := rungs.best(paused[bracket]):
                    run(best[0], bracket)
                    return True
            return False

        for trial in range(len(curves)):
            run(trial, trial % len(keeps))
            while resume():
                pass
        return done

    return work


def for_good(stops: Callable[[Sequence[float], Sequence[Sequence[float]]], bool]) -> Rule:
    """Return a rule that stops trials for good (without resumption).

    Args:
        stops: called after each epoch but the last with the trial's values so far, and with those of the trials before it, each
            as far as it was trained; returns whether the trial stops.
    """

    def work(curves: Curves) -> Work:
        done = Work([0] * len(curves))
        before: list[Sequence[float]] = []
        for trial, curve in enumerate(curves):
            while (epoch := done.train(trial)) < len(curve) and not stops(curve[:epoch], before):
                pass
            before.append(curve[: done.epochs[trial]])
        return done

    return work


def milestones(bounds: Mapping[int, float]) -> Rule:
    """Return the rule that stops a trial for good if its value after an epoch is below the epoch's bound."""
    return for_good(lambda curve, before: curve[-1] < bounds.get(len(curve), -math.inf))


def percentile(share: float, startup: int = 5, bounds: Mapping[int, float] | None = None) -> Rule:
    """Return Optuna's PercentilePruner, from the first epoch on; with a share of 50 it is the MedianPruner.

    Args:
        share: percentage of the complete trials that a trial must belong to, with the best of its values so far.
        startup: number of complete trials from which on trials are pruned.
        bounds: milestones beside the pruner. A trial that misses a milestone ends without a report, and counts as complete.
    """
    milestone = bounds or {}

    def work(curves: Curves) -> Work:
        done, complete = Work([0] * len(curves)), list[Sequence[float]]()
        for trial, curve in enumerate(curves):
            ended = False
            while not ended and done.epochs[trial] < len(curve):
                epoch = done.train(trial)
                if curve[epoch - 1] < milestone.get(epoch, -math.inf):
                    complete.append(curve[: epoch - 1])
                    ended = True
                    continue
                if len(complete) < startup:
                    continue
                others = [other[epoch - 1] for other in complete if len(other) >= epoch]
                ended = bool(others) and bool(max(curve[:epoch]) < np.percentile(others, 100 - share))
            if not ended:
                complete.append(curve)
            elif done.epochs[trial] == len(curve):
                done.pruned.add(trial)
        return done

    return work


def promotion(factor: int, epochs: Sequence[int] = (1, 2)) -> Rule:
    """Return Optuna's SuccessiveHalvingPruner: at each rung, a trial that is not among the best 1 / factor stops for good."""

    def stops(curve: Sequence[float], before: Sequence[Sequence[float]]) -> bool:
        epoch = len(curve)
        if epoch not in epochs:
            return False
        here = sorted([curve[-1], *(other[epoch - 1] for other in before if len(other) >= epoch)], reverse=True)
        return curve[-1] < here[max(len(here) // factor, 1) - 1]

    return for_good(stops)

"""Ablation of the canonicalization rules: the share of partial operators that pass them, by size, and how many they leave out.

There are two measurements of a space without its rules:

*By sampling.* A random graph of n primitives is built from the output up: each step is drawn with equal chances among the
kinds of steps that the options allow (sizes, occurrences, windows, contractions; no distance, no budget, no rules), then
among the steps of this kind. Graphs of a size are independent; a walk gives one graph of each size, and a walk that ends in a
state without steps gives no larger graphs. A graph is *canonical in its order* if every rule accepts every step as it was
drawn, and *canonical* if that is so for some order of the same steps: sums may come late in a walk, and rules want them
first. `exact` counts with the exact rules alone, which reject only redundant forms of other operators; the other rules
also exclude operators that are nearly the same, or are assumed to be of little use. The redundancy is graphs per canonical
graph.

*By exhaustion.* All complete operators of up to n primitives within the budget, with the rules and without: how many graphs
there are, and how many meanings they have (by fingerprint). With the rules off, C1 stays on: it says that sums come first.
Every graph has such an order, so C1 excludes none.

In both, each weight has at least two axes and ends one of them (no bare sums), as all weights of the published system do.

Paper: the canonicalization ablation (rate of canonical samples by size; more than 70 graphs for each canonical one).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.primitives import REDUCE
from syno.paper.ablations.parts import NO_PARTS, Parts, wilson
from syno.report.operators.folder import Show, silent
from syno.space.rules import RULES, RuleSet
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.steps import CONTRACTION, CandidateStep, StepKind

# Search for an order of a partial operator's steps that all rules accept.
#
# Steps that do not depend on each other commute, and some rules accept one order of them only. So a graph is canonical if
# some order of its steps is accepted.


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
    """A depth-first search for an order of steps that all rules accept, over sets of steps taken, each tried once."""

    def __init__(self, space: Space, steps: Sequence[CandidateStep], rules: RuleSet) -> None:
        self.space, self.steps, self.rules = space, steps, rules
        self.tops = [_new_dims(step.state, step.taken()) for step in steps]
        self.failed: set[tuple[frozenset[int], tuple[int, ...]]] = set()

    def accepted(self, state: State, done: frozenset[int], weights: tuple[int, ...], image: Image) -> bool:
        """Return whether the remaining steps can be taken in some order that the rules accept.

        Args:
            done: the numbers of the steps taken so far.
            weights: the numbers of the contractions among them, in order: the state depends on no other order.
            image: the dims of `state`, by the dims of the first run that they stand for.
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
            numbered = (*weights, index) if step.kind is CONTRACTION else weights
            if self.accepted(after, done | {index}, numbered, grown):
                return True
        self.failed.add((done, weights))
        return False

    def _ready(self, done: frozenset[int], image: Image) -> list[int]:
        """Return the numbers of the steps whose dims exist; of sums of one size only the first, as they are equivalent."""
        ready, sums = [], set()
        for index, step in enumerate(self.steps):
            if index in done or not all(dim in image for dim in step.dims):
                continue
            if step.kind is REDUCE:
                if step.size in sums:
                    continue
                sums.add(step.size)
            ready.append(index)
        return ready


def _new_dims(before: State, after: State) -> list[Dim]:
    known = set(before.data)
    return [dim for dim in after.data if dim not in known]


def _moved(step: CandidateStep, state: State, image: Image) -> CandidateStep:
    """Return the step with the dims of another state, as `image` maps them."""
    dims = [image[dim] for dim in step.dims]
    if step.kind is CONTRACTION:  # a set, in the order of the state
        dims = [dim for dim in state.data if dim in set(dims)]
    return replace(step, state=state, dims=tuple(dims), outer=frozenset(image[dim] for dim in step.outer))


def _matched(old: Sequence[Dim], new: Sequence[Dim], image: Image) -> Image:
    """Map the dims of the repeated step to those of its first run."""

    def place(dim: Dim, moved: bool) -> tuple[int, tuple[Dim, ...]]:
        bottoms = () if dim.operation is None else dim.operation.bottoms
        return dim.position, bottoms if moved else tuple(image[below] for below in bottoms)

    found = {place(dim, True): dim for dim in new}
    return {dim: found[place(dim, False)] for dim in old}


CHUNK = 100  # walks whose counts are kept together
ORDER_ONLY = "C1"
BARE_SUMS = "C12"


@dataclass
class Rate:
    """Counts of random graphs of one size.

    Attributes:
        size: the number of primitives; a contraction counts as one.
        graphs: number of graphs drawn.
        canonical: number of graphs that the rules accept in some order of their steps.
        in_order: number of graphs that the rules accept in the order in which their steps were drawn.
        exact: number of graphs that the exact rules accept in some order.
        built_in: number of graphs that the built-in rules accept in some order, without the user's own rules.
        rejected_by: for each rule, the number of graphs that it is the first to reject, in the order in which they were drawn.
    """

    size: int
    graphs: int = 0
    canonical: int = 0
    in_order: int = 0
    exact: int = 0
    built_in: int = 0
    rejected_by: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The share of canonical graphs among the graphs drawn."""
        return self.canonical / self.graphs if self.graphs else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the share of canonical graphs (Wilson)."""
        return wilson(self.canonical, self.graphs)

    def row(self) -> dict[str, object]:
        """Return the counts as a row of the table of random graphs."""
        low, high = self.interval
        return {
            "primitives": self.size,
            "graphs": self.graphs,
            "canonical": self.canonical,
            "share": round(self.share, 6),
            "low_95": round(low, 6),
            "high_95": round(high, 6),
            "redundancy": round(1 / self.share, 2) if self.canonical else None,
            "canonical_in_order": self.in_order,
            "canonical_by_exact_rules": self.exact,
            "rejected_by": " ".join(f"{rule}:{count}" for rule, count in self.rejected_by.most_common()),
        }


def canonical_rates(
    spec: OperatorSpec, samples: int, *, seed: int = 0, show: Show = silent, parts: Parts = NO_PARTS
) -> list[Rate]:
    """Draw `samples` random graphs of each size up to the spec's depth, and count those that are canonical.

    Args:
        spec: the space, with the rules to count by.
        samples: the number of walks.
        seed: the seed of the walks.
        show: shows the progress.
        parts: keeps the counts of every `CHUNK` walks.
    """
    space = Space(spec.with_(rules_off=("all",), rules_on=(BARE_SUMS,)), use_distance=False)
    sets = _RuleSets.of(spec)
    rates, random = [Rate(size) for size in range(1, spec.depth + 1)], Random(seed)
    for first in range(0, samples, CHUNK):
        last = min(first + CHUNK, samples)

        def count(first: int = first, last: int = last, rates: list[Rate] = rates) -> dict[str, Any]:
            for number in range(first, last):
                show("random graphs", number, samples)
                steps = random_steps(space, random, spec.depth)
                for rate in rates[: len(steps)]:
                    _count(rate, space, steps[: rate.size], sets)
            return {
                "rates": [{**vars(rate), "rejected_by": dict(rate.rejected_by)} for rate in rates],
                "random": random.getstate(),
            }

        found = parts.get(f"graphs-{last}-of-{samples}", count)  # the counts so far, and where the random numbers are
        rates = [Rate(**{**rate, "rejected_by": Counter(rate["rejected_by"])}) for rate in found["rates"]]
        version, state, gauss = found["random"]
        random.setstate((version, tuple(state), gauss))
    show("random graphs", samples, samples)
    return rates


class _RuleSets(NamedTuple):
    """The rules of a spec: all, the exact rules, and the built-in rules (None if the spec has no rules of the user's own)."""

    rules: RuleSet
    exact: RuleSet
    built_in: RuleSet | None

    @classmethod
    def of(cls, spec: OperatorSpec) -> _RuleSets:
        rules = RuleSet(spec.rules_off, spec.rules_on)
        own = own_rules(spec)
        without = RuleSet(spec.rules_off, [name for name in spec.rules_on if name not in own]) if own else None
        return cls(rules, rules.exact(), without)


def own_rules(spec: OperatorSpec) -> tuple[str, ...]:
    """Return the import paths of the user's own rules in a spec."""
    return tuple(name for name in spec.rules_on if ":" in name)


def _count(rate: Rate, space: Space, steps: Sequence[CandidateStep], sets: _RuleSets) -> None:
    rejected = next((row.id for step in steps for row in sets.rules.of(step.kind) if row.rejects(step)), None)
    rate.graphs += 1
    rate.in_order += rejected is None
    if rejected is not None:
        rate.rejected_by[rejected] += 1
    canonical = rejected is None or is_canonical(space, steps, sets.rules)
    rate.canonical += canonical
    rate.exact += canonical or is_canonical(space, steps, sets.exact)
    if sets.built_in is not None:
        rate.built_in += canonical or is_canonical(space, steps, sets.built_in)


def random_steps(space: Space, random: Random, most: int) -> list[CandidateStep]:
    """Return the steps of a random graph in the order drawn: `most` of them, or fewer if no step is left."""
    state = space.root
    steps: list[CandidateStep] = []
    while len(steps) < most:
        by_kind: dict[StepKind, list[CandidateStep]] = {}
        for candidate in space.candidates(state):
            if candidate.kind is CONTRACTION and (len(candidate.dims) < 2 or not candidate.outer):
                continue
            by_kind.setdefault(candidate.kind, []).append(candidate)
        if not by_kind:
            break
        steps.append(random.choice(by_kind[random.choice(list(by_kind))]))
        state = steps[-1].taken()
    return steps


@dataclass(frozen=True)
class Complete:
    """Numbers of complete operators of up to `size` primitives: graphs and meanings, without the rules and with them."""

    size: int
    graphs: int
    meanings: int
    canonical_graphs: int
    canonical_meanings: int

    def row(self) -> dict[str, object]:
        """Return the counts as a row of the table of complete operators."""
        return {
            "up_to_primitives": self.size,
            "graphs": self.graphs,
            "meanings": self.meanings,
            "redundancy": round(self.graphs / self.meanings, 2) if self.meanings else None,
            "canonical_graphs": self.canonical_graphs,
            "canonical_meanings": self.canonical_meanings,
            "canonical_redundancy": (
                round(self.canonical_graphs / self.canonical_meanings, 2) if self.canonical_meanings else None
            ),
            "graphs_per_canonical": round(self.graphs / self.canonical_graphs, 2) if self.canonical_graphs else None,
        }


def complete_operators(spec: OperatorSpec, depth: int, *, show: Show = silent) -> list[Complete]:
    """Count all complete operators of up to `depth` primitives with the rules and without. The time is exponential in depth."""
    off = tuple(id_ for id_, row in RULES.items() if row.on and id_ not in (ORDER_ONLY, BARE_SUMS))
    sizes = range(1, min(depth, spec.depth) + 1)
    bounded = spec.with_(depth=sizes[-1])
    without = _operators_and_meanings(bounded.with_(rules_off=off, rules_on=()), show, "complete operators without rules")
    ruled = _operators_and_meanings(bounded, show, "complete operators with rules")
    return [
        Complete(size, *(number for found in (without, ruled) for number in (found[0][size], found[1][size]))) for size in sizes
    ]


def _ends_an_axis(operator: PGraph, weight: Sequence[Dim]) -> bool:
    """Return whether a weight has at least two axes, one of which indexes no other tensor."""
    shares = [dim.operation for dim in weight if dim.operation is not None]
    return len(weight) > 1 and any(share.tops[0] in operator.expansions for share in shares)


def _operators_and_meanings(spec: OperatorSpec, show: Show, title: str) -> tuple[dict[int, int], dict[int, int]]:
    """Return the numbers of operators and of distinct meanings with up to n primitives, each by n."""
    space, graphs = Space(spec), Counter[int]()
    meanings: dict[str, int] = {}
    for size, operator in space.enumerate():
        if not all(_ends_an_axis(operator, weight) for weight in operator.weights):
            continue
        graphs[size] += 1
        meanings.setdefault(space.fingerprint(operator), size)
        show(title, size, spec.depth)
    by_size, sizes = Counter(meanings.values()), range(1, spec.depth + 1)
    return (
        {size: sum(graphs[smaller] for smaller in range(size + 1)) for size in sizes},
        {size: sum(by_size[smaller] for smaller in range(size + 1)) for size in sizes},
    )

"""Common patterns: the shares of operators in which primitives, and combinations of primitives, occur.

The operators of a study, of a selection or of an import are compared with the best of them (by reward), and with random
operators of the same space. The lift of a pattern is its share among the best over its share among all that were found
(`lift_best`), and its share among these over its share among random operators (`lift_random`). A lift above 1 whose interval
excludes 1 says that the pattern goes along with good operators; it does not say why.

Columns of the table `ablation-patterns`, beside those of all ablations (`syno.paper.ablations.tables`):

    family, pattern             what occurs (`syno.paper.ablations.patterns.patterns`)
    operators, with_pattern     operators found, and those with the pattern
    share, low, high            their share, with its 95 % interval (Wilson)
    best, best_with, best_share the best operators, and those with the pattern
    lift_best, ..._low, _high   with a 95 % interval from 2,000 bootstrap samples of the operators found
    random, random_with, random_share    random operators of the space
    lift_random, ..._low, _high with the 95 % interval of a ratio of two independent shares (`scipy.stats.contingency`)

Rows are patterns that occur in at least 2 % of one of the groups, and twice. The seed makes random operators and intervals
the same in every run.

Paper: the discussion of common patterns in the operators found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, permutations
from math import ceil, isfinite
from random import Random
from typing import NamedTuple

import numpy as np

from syno.base.collection import seldom_collected
from syno.base.errors import LoweringError, SizeError, ValuationError
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE, UNFOLD
from syno.ir.read_pattern import read_pattern
from syno.ir.reading import Border, readings
from syno.ir.text import parse
from syno.paper.ablations.parts import CONFIDENCE, NO_PARTS, Parts, wilson
from syno.report.operators.folder import Show, silent
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec

# The patterns that occur in an operator: primitives, connected pieces of its graph, what it reads, how its weights are used.
#
# >>> import syno
# >>> found = patterns(syno.OPERATORS["operator_1"]())
# >>> [name for family, name in sorted(found) if family == "structure"]
# ['low-rank: two weights share a sum that one of them ends', 'one window indexes two weights']


FAMILIES = ("primitive", "count", "pair", "triple", "reads", "structure")
LOW_RANK = "low-rank: two weights share a sum that one of them ends"
SHARED_WINDOW = "one window indexes two weights"
UNWEIGHTED = "a sum that no weight multiplies"
Pattern = tuple[str, str]  # family and name


class _Edge(NamedTuple):
    """An operation directly above another: the indices of both, and in words the dims that they share."""

    upper: int
    lower: int
    touch: str


def patterns(operator: PGraph) -> frozenset[Pattern]:
    """Return the patterns of an operator, each with its family.

    primitive   a primitive that occurs; a Share is an axis of a weight, an Expand on a Share is an axis that a weight ends
    count       how often each occurs, and the number of weights
    pair        two operations, one on the other, such as `Unfold(window) on Share`
    triple      three connected operations, up to isomorphism
    reads       at how many positions along the axes of the input it reads, whether it shifts or exchanges axes
    structure   how weights and sums belong together
    """
    operations = [*operator.operations, *(dim.operation for dim in operator.reduces if dim.operation is not None)]
    counts = Counter(operation.primitive.name for operation in operations)
    found: set[Pattern] = {("primitive", name) for name in counts}
    found |= {("count", f"{number} x {name}") for name, number in counts.items() if name not in (SHARE.name, EXPAND.name)}
    found.add(("count", f"{len(operator.weights)} weight{'' if len(operator.weights) == 1 else 's'}"))
    edges = _edges(operations)
    names = [operation.primitive.name for operation in operations]
    found |= {("pair", _shape(names, [edge])) for edge in edges}
    found |= {("triple", _shape(names, piece)) for piece in _triples(edges)}
    found |= {("reads", text) for text in _reads(operator)}
    found |= {("structure", text) for text in _structure(operator)}
    return frozenset(found)


def _edges(operations: list[Operation]) -> list[_Edge]:
    place = {operation: number for number, operation in enumerate(operations)}
    found = []
    for operation, upper in place.items():
        bottoms, names = operation.bottoms, operation.primitive.bottoms
        for name, dim in zip(names, bottoms, strict=True):
            if dim.operation is not None:
                tops = dim.operation.primitive.tops
                at = f"({name})" if len(names) > 1 else ""
                end = f".{tops[dim.position]}" if len(tops) > 1 and dim.operation.primitive is not SHARE else ""
                found.append(_Edge(upper, place[dim.operation], f"{at} on {{}}{end}"))
    return found


def _triples(edges: list[_Edge]) -> Iterator[list[_Edge]]:
    """Yield, for every three connected operations, the list of edges among them."""
    seen: set[frozenset[int]] = set()
    for one, other in combinations(edges, 2):
        nodes = frozenset((one.upper, one.lower, other.upper, other.lower))
        if len(nodes) == 3 and nodes not in seen:
            seen.add(nodes)
            yield [edge for edge in edges if edge.upper in nodes and edge.lower in nodes]


def _shape(names: Mapping[int, str] | list[str], edges: list[_Edge]) -> str:
    """Return a text of a piece of a graph that is equal for isomorphic pieces: the least over numberings of its primitives."""
    nodes = sorted({node for edge in edges for node in (edge.upper, edge.lower)})
    several = {name for name, number in Counter(names[node] for node in nodes).items() if number > 1}
    texts = []
    for order in permutations(nodes):
        labels: dict[int, str] = {}
        numbers: Counter[str] = Counter()
        for node in order:
            numbers[names[node]] += 1
            labels[node] = f"{names[node]}{numbers[names[node]]}" if names[node] in several else names[node]
        texts.append("; ".join(sorted(f"{labels[edge.upper]}{edge.touch.format(labels[edge.lower])}" for edge in edges)))
    return min(texts)


def _reads(operator: PGraph) -> Iterator[str]:
    with suppress(ValuationError, SizeError, LoweringError):  # windows without a size
        pattern = read_pattern(operator)
        yield f"reads {pattern.shape}"
        if pattern.is_transposed:
            yield "exchanges axes"
    if any(step.border is Border.AROUND for one in readings(operator) for step in one.steps):
        yield "shifts around the border"


def _structure(operator: PGraph) -> Iterator[str]:
    if any(len(_weights_below(dim)) > 1 and _bottom(dim).is_reduce for dim in operator.expansions):
        yield LOW_RANK
    windows = (operation.bottoms[1] for operation in operator.operations if operation.primitive is UNFOLD)
    if any(len(_weights_below(dim)) > 1 for dim in windows):
        yield SHARED_WINDOW
    shared = {_bottom(dim) for weight in operator.weights for dim in weight}
    if any(dim not in shared and not _is_weighted_above(dim, operator) for dim in operator.reduces):
        yield UNWEIGHTED


def _weights_below(dim: Dim) -> set[object]:
    """Return the weights of the chain of Shares directly below a dim."""
    found: set[object] = set()
    while dim.operation is not None and dim.operation.primitive is SHARE:
        found.add(dim.operation.parameter)
        dim = dim.operation.bottoms[0]
    return found


def _bottom(dim: Dim) -> Dim:
    """Return the dim below the chain of Shares directly below a dim."""
    while dim.operation is not None and dim.operation.primitive is SHARE:
        dim = dim.operation.bottoms[0]
    return dim


def _is_weighted_above(loop: Dim, operator: PGraph) -> bool:
    """Return whether a weight is multiplied in at an axis that depends on this reduction loop."""
    above = {loop}
    for operation in operator.operations:
        if above.intersection(operation.bottoms):
            if operation.primitive is SHARE:
                return True
            above.update(operation.tops)
    return False


COLUMNS = (
    "space", "space_id", "depth", "family", "pattern", "operators", "with_pattern", "share", "low", "high",
    "best", "best_with", "best_share", "lift_best", "lift_best_low", "lift_best_high",
    "random", "random_with", "random_share", "lift_random", "lift_random_low", "lift_random_high", "seed", "seconds", "origin",
)  # fmt: skip
LEAST_SHARE, LEAST_NUMBER = 0.02, 2
BOOTSTRAPS = 2000
CHUNK = 50  # random operators that are kept together
Lift = tuple[float | None, float | None, float | None]  # with the ends of its interval; None where they are unknown
UNKNOWN: Lift = (None, None, None)


@dataclass(frozen=True)
class FoundOperators:
    """The distinct operators of a search, a selection or an import.

    Attributes:
        operators: the operators.
        rewards: the reward of each operator; () if they have no rewards.
    """

    operators: tuple[PGraph, ...]
    rewards: tuple[float, ...] = ()

    def best(self, share: float) -> list[bool]:
        """Return for each operator whether it is in the best `share` by reward: at least one is; ties go to earlier ones."""
        if not self.rewards:
            return [False] * len(self.operators)
        order = sorted(range(len(self.rewards)), key=lambda place: -self.rewards[place])
        chosen = set(order[: max(1, ceil(share * len(order)))])
        return [place in chosen for place in range(len(order))]


@seldom_collected()
def random_operators(
    spec: OperatorSpec, count: int, *, seed: int = 0, show: Show = silent, parts: Parts = NO_PARTS
) -> list[PGraph]:
    """Return `count` distinct random operators of a space; all of its operators if there are fewer.

    Args:
        spec: the space.
        count: the number of operators.
        seed: the seed of the walks.
        show: shows the progress.
        parts: stores the drawn operators, so that an interrupted call continues.
    """
    space, found = Space(spec), list[PGraph]()
    for last in range(CHUNK, count + CHUNK, CHUNK):
        wanted = min(last, count)
        kept = parts.peek(f"random-{wanted}")
        if kept is not None:
            found = [parse(text) for text in kept]
            continue
        sampler = Sampler(space, Random(f"{seed} random operators {last}"))  # a run that continues draws the same
        for operator in found:
            sampler.know(operator)
        while len(sampler.operators) < wanted and not sampler.is_exhausted:
            show("random operators", len(sampler.operators), count)
            sampler.draw()
        found = list(sampler.operators)
        parts.put(f"random-{wanted}", [str(operator) for operator in found])
        if sampler.is_exhausted:
            break
    return found


def pattern_rows(operators: FoundOperators, drawn: Sequence[PGraph], *, best: float, seed: int) -> list[dict[str, object]]:
    """Return a row for each pattern, sorted by family, the most frequent first.

    Args:
        operators: the operators of the search.
        drawn: random operators of the same space; () for no comparison with them.
        best: the share of operators that count as the best.
        seed: the seed of the bootstrap samples.
    """
    sets, is_best = [patterns(operator) for operator in operators.operators], operators.best(best)
    at_random = [patterns(operator) for operator in drawn]
    names = sorted({name for each in (*sets, *at_random) for name in each})
    rows = [_row(name, [name in each for each in sets], is_best, [name in each for each in at_random], seed) for name in names]
    kept = [row for row in rows if _is_common(row)]
    return sorted(kept, key=lambda row: (FAMILIES.index(str(row["family"])), -_count(row["with_pattern"]), str(row["pattern"])))


def _row(name: Pattern, has: list[bool], is_best: list[bool], drawn: list[bool], seed: int) -> dict[str, object]:
    low, high = wilson(sum(has), len(has))
    of_best = [one for one, chosen in zip(has, is_best, strict=True) if chosen]
    columns = ("lift_best", "lift_best_low", "lift_best_high"), ("lift_random", "lift_random_low", "lift_random_high")
    lifts = lift_of_best(has, is_best, seed), lift_of_found(sum(has), len(has), sum(drawn), len(drawn))
    return {
        "family": name[0],
        "pattern": name[1],
        "operators": len(has),
        "with_pattern": sum(has),
        "share": _share(sum(has), len(has)),
        "low": low,
        "high": high,
        "best": len(of_best),
        "best_with": sum(of_best),
        "best_share": _share(sum(of_best), len(of_best)),
        **dict(zip(columns[0], lifts[0], strict=True)),
        "random": len(drawn),
        "random_with": sum(drawn),
        "random_share": _share(sum(drawn), len(drawn)),
        **dict(zip(columns[1], lifts[1], strict=True)),
    }


def lift_of_best(has: Sequence[bool], is_best: Sequence[bool], seed: int) -> Lift:
    """Return the share of a pattern among the best over its share among all, with its 95 % interval.

    Operators are resampled with replacement. Since only four classes matter (best or not, with the pattern or not), a
    bootstrap sample is a draw of the four counts from a multinomial distribution.
    """
    cells = [sum(1 for pair in zip(has, is_best, strict=True) if pair == kind) for kind in _KINDS]
    if not sum(cells[::2]) or not sum(cells[:2]):  # no best, or nowhere
        return UNKNOWN
    drawn = np.random.default_rng(seed).multinomial(len(has), np.array(cells) / len(has), BOOTSTRAPS)
    with np.errstate(divide="ignore", invalid="ignore"):
        lifts = (drawn[:, 0] / drawn[:, [0, 2]].sum(axis=1)) / (drawn[:, :2].sum(axis=1) / len(has))
    low, high = np.quantile(lifts[np.isfinite(lifts)], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return (cells[0] / (cells[0] + cells[2])) / ((cells[0] + cells[1]) / len(has)), float(low), float(high)


_KINDS = ((True, True), (True, False), (False, True), (False, False))  # with the pattern, and among the best


def lift_of_found(having: int, of: int, drawn: int, of_drawn: int) -> Lift:
    """Return the share of a pattern among a search's operators over its share among random ones, with its 95 % interval."""
    from scipy.stats.contingency import relative_risk

    if not of or not drawn:
        return UNKNOWN
    ratio = relative_risk(having, of, drawn, of_drawn)
    interval = ratio.confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    return float(ratio.relative_risk), low if isfinite(low) else 0.0, high if isfinite(high) else None


def _is_common(row: dict[str, object]) -> bool:
    groups = (("with_pattern", "operators"), ("best_with", "best"), ("random_with", "random"))
    counts = [(_count(row[name]), _count(row[of])) for name, of in groups]
    return sum(number for number, _ in (counts[0], counts[2])) >= LEAST_NUMBER and any(
        of and number / of >= LEAST_SHARE for number, of in counts
    )


def _share(number: int, of: int) -> float | None:
    return number / of if of else None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0

"""Canonicalization rules on weights, on the order of independent steps, and on sums.

Paper: section 5.3.
"""

from __future__ import annotations

from syno.algebra import product
from syno.ir.dim import Dim
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHIFT, SPLIT, STRIDE, UNFOLD
from syno.space.facts import FactTable, adjacent, touches
from syno.space.rules.forms import outer_alike
from syno.space.rules.table import Rest, rule
from syno.space.spec import OperatorSpec
from syno.space.state import State
from syno.space.steps import CONTRACTION, FINALIZE, CandidateStep


@rule("C1", REDUCE, "anything, then Reduce", "a sum is independent of other steps: all sums come first", exact=True)
def _(step: CandidateStep) -> bool:
    counts = step.state.ends.counts
    return counts.steps > counts.reductions


@rule(
    "C5",
    CONTRACTION,
    "a weight without an outer or without an inner dim",
    "this is a scaling or an outer product, and not a matmul",
    exact=False,
)
def _(step: CandidateStep) -> bool:
    return not 0 < len(step.outer) < len(step.dims)


@rule("C6", CONTRACTION, "a weight with few elements", "a small weight can learn little", exact=False)
def _(step: CandidateStep) -> bool:
    return step.sizes[product(dim.size for dim in step.dims)].lowest < step.spec.contractions.least_elements


@rule(
    "C7",
    CONTRACTION,
    "independent weights in descending order",
    "they commute: the one with the lower dims comes first",
    exact=True,
)
def _(step: CandidateStep) -> bool:
    leaders = step.state.ends.leaders
    if not leaders or any(step.facts[dim].tags >> len(leaders) & 1 for dim in step.dims):
        return False
    return not leaders[-1] < step.leader


@rule(
    "C8",
    (MERGE, SHIFT, STRIDE, EXPAND, SPLIT),
    "Contraction, then a view of dims that the contraction does not use",
    "they commute: the view comes first",
    exact=True,
)
def _(step: CandidateStep) -> bool:
    weights = step.state.ends.counts.weights
    return weights > 0 and not any(step.facts[dim].tags >> weights & 1 for dim in step.dims)


@rule(
    "C9",
    CONTRACTION,
    "two outer dims that are adjacent",
    "two expanded pieces of one axis are one expanded axis",
    exact=True,
    rest=Rest(
        outer_alike,
        "two outer dims that are adjacent but below different weights, or sums too large together",
        "no single outer dim replaces both",
    ),
)
def _(step: CandidateStep) -> bool:
    outer = [step.facts[dim] for dim in step.dims if dim in step.outer]
    return any(adjacent(a, b) for a in outer for b in outer if a is not b)


@rule("C10", EXPAND, "Expand beside an earlier Expand", "two expanded pieces of one axis are one expanded axis", exact=True)
def _(step: CandidateStep) -> bool:
    return any(touches(step.of(), step.facts[dim]) for dim in step.state.expansions)


@rule(
    "C10b",
    CONTRACTION,
    "an outer dim beside an earlier Expand",
    "two expanded pieces of one axis are one expanded axis; the published system left this out",
    exact=True,
    on=False,
)
def _(step: CandidateStep) -> bool:
    return any(touches(step.facts[dim], step.facts[other]) for dim in step.outer for other in step.state.expansions)


@rule("C11", EXPAND, "only sums, then Expand", "the sum is a constant factor, which weights can learn", exact=False)
def _(step: CandidateStep) -> bool:
    return step.of().only_sums and not step.of().discards  # the elements that a Stride skips must end as a window or repeat


@rule("C12", CONTRACTION, "a bare reduction as outer dim", "the sum would be over the weight only", exact=False)
def _(step: CandidateStep) -> bool:
    return any(step.facts[dim].origin is REDUCE for dim in step.outer)


@rule(
    "C13",
    (CONTRACTION, SHIFT, STRIDE, SPLIT, UNFOLD, EXPAND, MERGE),
    "long chains",
    "people do not use operators with such deep expressions",
    exact=False,
)
def _(step: CandidateStep) -> bool:
    longest = step.spec.occurrences.chain_length
    return any(step.facts[dim].height >= longest for dim in step.dims)


@rule("C14", FINALIZE, "much pooling", "sums without a weight lose information", exact=False)
def _(step: CandidateStep) -> bool:
    return pools_much(step.state, step.facts, step.spec)


def pools_much(state: State, facts: FactTable, spec: OperatorSpec) -> bool:
    """Return whether the product of the sums without a Share above them (pooling) exceeds the spec's limit."""
    pooled, weighted = set[Dim](), set[Dim]()
    for dim in state.data:
        pooled |= facts[dim].pooled
        weighted |= facts[dim].weighted
    return facts.sizes[product(dim.size for dim in pooled - weighted)].highest > spec.reductions.largest_pooling

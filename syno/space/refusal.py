"""Reasons why a step is refused, in words: an option, a rule or a bound."""

from __future__ import annotations

from syno.algebra import Size, product
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SPLIT, STRIDE, UNFOLD
from syno.space.candidates import OPTIONS, Candidates
from syno.space.distance.feasibility import Feasibility
from syno.space.distance.problem import UNREACHABLE
from syno.space.rules import RuleSet
from syno.space.sizes import added
from syno.space.state import State
from syno.space.steps import CONTRACTION, CandidateStep


def described(step: CandidateStep) -> str:
    """Return a step in words, such as `Merge(C_out -> g, g^-1*C_out)`."""
    dims = ", ".join(f"{dim.size}{' (outer)' if dim in step.outer else ''}" for dim in step.dims)
    if step.kind is REDUCE:
        return f"Reduce({step.size})"
    if step.kind is MERGE:
        return f"Merge({dims} -> {step.dims[0].size / step.block}, {step.block})"
    return f"{step.kind}({dims}{f' by {step.block}' if step.kind is STRIDE else ''})"


def why_rejected(rules: RuleSet, step: CandidateStep) -> str | None:
    """Return the first rule that rejects the step, in words; None if all accept it. Rejections are not counted."""
    row = next((row for row in rules.of(step.kind) if row.rejects(step)), None)
    return None if row is None else f"rule {row.id} rejects it ({row.forbids}: {row.reason})"


def why_infeasible(feasibility: Feasibility, state: State) -> str:
    """Return the bound that excludes all completions of an infeasible state, in words."""
    spec = feasibility.spec
    left, least, most = spec.depth - state.steps, feasibility.least_flops, feasibility.most_flops
    if left < 0:
        return f"the operator has more than {spec.depth} primitives (depth)"
    bound = feasibility.flops.lower_bound(state)
    if bound > most:
        return f"it needs {bound:.4g} FLOPs in the replaced layers, of {most:.4g} (budget)"
    if feasibility.other is not None:
        return f"its distance is above {left}, the primitives left (distance: {feasibility.kind}, which may be too large)"
    if feasibility.distance_of(state) < UNREACHABLE:
        return f"no operator made of it reaches the {least:.4g} FLOPs that the replaced layers need (budget)"
    if feasibility.without_budget(state) > left:
        return f"the state after it is more than {left} primitives from an operator (shape distance)"
    loops = feasibility.iterations(state)
    return f"about {loops:.4g} multiply-adds in the replaced layers are outside {least:.4g} to {most:.4g} (budget)"


def why_not_offered(candidates: Candidates, step: CandidateStep) -> str | None:
    """Return the option that keeps the step from being proposed, in words; None if it is proposed."""
    if any(_equal(offered, step) for offered in candidates.proposed(step.state)):
        return None
    spec, (counted, option) = step.spec, OPTIONS[step.kind]
    most, used = getattr(spec.occurrences, option), getattr(step.state.ends.counts, counted)
    if step.kind is CONTRACTION:
        if used + 1 >= most:
            return f"there are {used} weights already (occurrences: tensors is {most})"
        return _contraction(candidates, step)
    if most is not None and used >= most:
        return f"there are {used} of its kind already (occurrences: {option} is {most})"
    for size in _new_sizes(step):
        facts = step.sizes[size]
        if facts.is_one and spec.sizes.drop_ones:
            return f"the size {size} is 1 for every layer (sizes: drop_ones)"
        if not facts.is_legal:
            return f"the size {size} is below 1 for some layer, or no legal size"
        if not facts.is_valid:
            return f"the size {size} has too many variables, or is no whole number for some layer (sizes)"
    return _by_kind(step)


def _equal(offered: CandidateStep, step: CandidateStep) -> bool:
    if offered.kind is not step.kind or offered.size is not step.size or offered.outer != step.outer:
        return False
    return offered.dims == step.dims or (step.kind is CONTRACTION and set(offered.dims) == set(step.dims))


def _new_sizes(step: CandidateStep) -> list[Size]:
    if step.kind is SPLIT:
        return [product(dim.size for dim in step.dims)]
    if step.kind is MERGE:
        return [step.block, step.dims[0].size / step.block]
    return [step.size] if step.size is not None else [dim.size for dim in step.dims]


def _by_kind(step: CandidateStep) -> str:
    spec, sizes, usage = step.spec, step.sizes, step.state.ends.usage
    beyond = "its exponents are beyond those tried (sizes: enumerations_per_variable)"
    if step.kind is REDUCE:
        if not sizes.fits(usage, sizes.reduced(step.block)):
            return f"its variables occur too often (variables: {spec.variables})"
        if step.block not in sizes.sizes(sizes.none):
            return beyond
        return f"all sums together are too large (reductions: multiple is {spec.reductions.multiple:g})"
    if step.kind is MERGE:
        if not sizes.fits(usage, sizes.merged(step.block, step.dims[0].size / step.block)):
            return f"its variables occur too often (variables: {spec.variables}; sizes: count_merges)"
        return beyond
    if step.kind is UNFOLD:
        window, options = step.of(1).size, spec.windows
        if options.odd and not window.is_odd:
            return f"the window {step.dims[1].size} is not odd for every layer (windows: odd)"
        if window.highest > options.largest:
            return f"the window {step.dims[1].size} is {window.highest:g} (windows: largest is {options.largest})"
        return f"the axis is too short for the window (windows: least_ratio is {options.least_ratio:g})"
    if step.kind is EXPAND:
        return f"repeats are too large or not allowed (repeats: largest is {spec.repeats.largest}, tile {spec.repeats.tile})"
    if step.kind is STRIDE:
        return f"the strided axis is too long (windows: largest_strided is {spec.windows.largest_strided})"
    return "the axis skips elements, and only a window may follow (Stride)"


def _contraction(candidates: Candidates, step: CandidateStep) -> str:
    spec, sizes, used = step.spec, step.sizes, step.state.ends.usage
    for dim in step.dims:
        if not sizes.fits(used, step.facts[dim].size.shared):
            return f"the variables of {dim.size} occur too often (variables: {spec.variables})"
        used = added(used, step.facts[dim].size.shared)
    reached, options = step.state.ends.outer, spec.contractions
    for dim in step.dims:
        if dim in step.outer:
            reached = reached * dim.size
            if not candidates.may_be_outer(step.facts[dim], reached):
                return (
                    f"{dim.size} cannot be outer: only the output's axes and pieces of them, together at most "
                    f"{options.largest_outer} (contractions: largest_outer), and sums that another weight has, of "
                    f"{options.least_low_rank} to {options.most_low_rank} (least_low_rank, most_low_rank)"
                )
    return "a weight has an outer and an inner dim (rule C5), and no more axes than the options allow (occurrences: shares)"

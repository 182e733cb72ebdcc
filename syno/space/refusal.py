"""Why a step is not offered: which option forbids it."""

from __future__ import annotations

from syno.algebra import Size, product
from syno.space.candidates import Candidates
from syno.space.rules.table import CONTRACTION, Candidate

COUNTED = {
    "Reduce": "reductions",
    "Shift": "shifts",
    "Stride": "strides",
    "Split": "splits",
    "Unfold": "unfolds",
    "Expand": "repeats",
    "Merge": "merges",
}


def why_not_offered(candidates: Candidates, step: Candidate) -> str | None:
    """The option that keeps the step from being proposed, in words; None if it is proposed."""
    if any(_same(offered, step) for offered in candidates.proposed(step.state)):
        return None
    spec, counts = step.spec, step.state.ends.counts
    if step.kind == CONTRACTION:
        if counts.weights + 1 >= spec.occurrences.tensors:
            return f"there are {counts.weights} weights already (occurrences: tensors is {spec.occurrences.tensors})"
        return _contraction(candidates, step)
    most = getattr(spec.occurrences, "expands" if step.kind == "Expand" else COUNTED[step.kind])
    used = getattr(counts, COUNTED[step.kind])
    if most is not None and used >= most:
        return f"there are {used} of its kind already (occurrences: {COUNTED[step.kind]} is {most})"
    for size in _new_sizes(step):
        facts = step.sizes[size]
        if facts.is_one and spec.sizes.drop_ones:
            return f"the size {size} is 1 for every layer (sizes: drop_ones)"
        if not facts.is_legal:
            return f"the size {size} is below 1 for some layer, or no legal size"
        if not facts.is_valid:
            return f"the size {size} has too many variables, or is no whole number for some layer (sizes)"
    return _by_kind(candidates, step)


def _same(offered: Candidate, step: Candidate) -> bool:
    if offered.kind != step.kind or offered.size is not step.size or offered.outer != step.outer:
        return False
    return offered.dims == step.dims or (step.kind == CONTRACTION and set(offered.dims) == set(step.dims))


def _new_sizes(step: Candidate) -> list[Size]:
    if step.kind == "Split":
        return [product(dim.size for dim in step.dims)]
    if step.kind == "Merge":
        return [step.block, step.dims[0].size / step.block]
    return [step.size] if step.size is not None else [dim.size for dim in step.dims]


def _by_kind(candidates: Candidates, step: Candidate) -> str:
    spec, sizes, usage = step.spec, step.sizes, step.state.ends.usage
    match step.kind:
        case "Reduce":
            if not sizes.fits(usage, sizes.reduced(step.block)):
                return f"its variables occur too often (variables: {spec.variables})"
            if step.block not in sizes.sizes(sizes.none):
                return "its exponents are beyond those tried (sizes: enumerations_per_variable)"
            return f"all sums together are too large (reductions: multiple is {spec.reductions.multiple:g})"
        case "Merge":
            if not sizes.fits(usage, sizes.merged(step.block, step.dims[0].size / step.block)):
                return f"its variables occur too often (variables: {spec.variables}; sizes: count_merges)"
            return "its exponents are beyond those tried (sizes: enumerations_per_variable)"
        case "Unfold":
            window, options = step.of(1), spec.windows
            if options.odd and not window.size.is_odd:
                return f"the window {step.dims[1].size} is not odd for every layer (windows: odd)"
            if window.size.highest > options.largest:
                return f"the window {step.dims[1].size} is {window.size.highest:g} (windows: largest is {options.largest})"
            return f"the axis is too short for the window (windows: least_ratio is {options.least_ratio:g})"
        case "Expand":
            return (
                f"repeats are too large or not allowed (repeats: largest is {spec.repeats.largest}, tile {spec.repeats.tile})"
            )
        case "Stride":
            return f"the strided axis is too long (windows: largest_strided is {spec.windows.largest_strided})"
    return "the axis skips elements, which only a window takes up"


def _contraction(candidates: Candidates, step: Candidate) -> str:
    spec, sizes, used = step.spec, step.sizes, step.state.ends.usage
    for dim in step.dims:
        if not sizes.fits(used, step.facts[dim].size.shared):
            return f"the variables of {dim.size} occur too often (variables: {spec.variables})"
        used = tuple(a + b for a, b in zip(used, step.facts[dim].size.shared, strict=True))
    reached = step.state.ends.outer
    for dim in step.dims:
        if dim in step.outer:
            reached = reached * dim.size
            if not candidates.may_be_outer(step.facts[dim], reached):
                return (
                    f"{dim.size} cannot be outer: only the output's axes and pieces of them, together at most "
                    f"{spec.contractions.largest_outer} (contractions: largest_outer), and sums that another weight has, of "
                    f"{spec.contractions.least_low_rank} to {spec.contractions.most_low_rank} (least_low_rank, most_low_rank)"
                )
    return "a weight has an outer and an inner dim (rule C5), and no more axes than the options allow (occurrences: shares)"

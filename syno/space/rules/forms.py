"""Conditions under which a step that an exact rule rejects has an equal form that the approximate rules accept.

An exact rule may reject a step only if its result is reached in another way. The functions here construct the other form's
primitives, check them against the approximate rules, and compare the occurrences of variables.
"""

from __future__ import annotations

from functools import cache

from syno.algebra import Size
from syno.ir.dim import Dim
from syno.ir.primitives import MERGE, SHARE, SPLIT, STRIDE
from syno.space.facts import Origin, Role, adjacent
from syno.space.rules.table import RULES, Rule
from syno.space.sizes import Usage
from syno.space.steps import CandidateStep, StepKind


def is_left(step: CandidateStep, kind: StepKind, dims: tuple[Dim, ...], size: Size | None = None) -> bool:
    """Return whether the approximate rules on views accept this primitive on these dims."""
    other = step.other(kind, dims, size)
    return not any(row.rejects(other) for row in _approximate() if kind in row.looks_at)


@cache
def _approximate() -> tuple[Rule, ...]:
    """Return the approximate rules on views that are on by default."""
    return tuple(row for row in RULES.values() if row.id[0] == "V" and row.on and not row.exact)


def is_size(step: CandidateStep, size: Size) -> bool:
    """Return whether a dim may have this size in the spec."""
    facts = step.sizes[size]
    return facts.is_legal and facts.is_valid


def is_cut(step: CandidateStep, dim: Dim, block: Size, *, most: Usage) -> bool:
    """Return whether a Merge with at most the occurrences `most` can cut the dim, and the approximate rules accept it."""
    if not is_size(step, block):
        return False
    used = dict(step.sizes.divisors(dim.size)).get(block)
    return used is not None and no_more(step, used, most) and is_left(step, MERGE, (dim,), block)


def no_more(step: CandidateStep, used: Usage, most: Usage) -> bool:
    """Return whether a Merge uses at most the occurrences of the other form; True if the spec does not count Merges."""
    return not step.spec.sizes.count_merges or all(a <= b for a, b in zip(used, most, strict=True))


def merged(step: CandidateStep) -> Usage:
    """Return the occurrences of variables that the step, a Merge, uses."""
    return step.sizes.merged(step.block, step.dims[0].size / step.block)


def merged_below_split(step: CandidateStep) -> bool:
    """V1: return whether the Merge can act on the Split's major or minor instead, with the same pieces for weights to end."""
    major, minor = _bottoms(step.dims[0])
    ends_major, ends_minor = (step.facts[dim].role is Role.OUTER for dim in (major, minor))
    if step.block is minor.size:
        return ends_major and ends_minor
    most = merged(step)
    if is_cut(step, major, step.block / minor.size, most=most):
        return ends_minor and not step.facts[major].only_sums
    return is_cut(step, minor, step.block, most=most) and ends_major and not step.facts[minor].only_sums


def cut_of_a_split(step: CandidateStep) -> bool:
    """V1: return whether the Merge acts on a piece of a Split that another Merge cut: a detour around V1."""
    dim = step.dims[0]
    while step.facts[dim].origin in (Origin.QUOTIENT, Origin.REMAINDER):
        (dim,) = _bottoms(dim)
    return dim is not step.dims[0] and step.facts[dim].origin is SPLIT


def fused_merge(step: CandidateStep) -> bool:
    """V2: return whether one Merge can cut off both remainders together."""
    (axis,), quotient = _bottoms(step.dims[0]), step.dims[0].size
    inner = axis.size / quotient
    before = zip(merged(step), step.sizes.merged(inner, quotient), strict=True)
    remainder = step.sizes.merged(inner, step.block)  # occurrences of the Merge that then cuts the remainder
    most = tuple(first + second - later for (first, second), later in zip(before, remainder, strict=True))
    return is_cut(step, axis, inner * step.block, most=most)


def neighbours_alike(step: CandidateStep) -> bool:
    """V4: return whether the two touching dims are adjacent at the bottom and are indexed by the same weights."""
    return _one_axis(step, step.dims[0], step.dims[1])


def below_minor(step: CandidateStep) -> bool:
    """V8: return whether the Stride can act on the Split's minor instead of the Split."""
    return is_left(step, STRIDE, (_bottoms(step.dims[0])[1],), step.block)


def below_a_stride(step: CandidateStep) -> bool:
    """V9: return whether a Merge below the Stride gives the same pieces."""
    (axis,) = _bottoms(step.dims[0])
    assert step.dims[0].operation is not None
    factor = step.dims[0].operation.parameter
    assert isinstance(factor, Size)
    return is_cut(step, axis, step.block / factor, most=merged(step))


def below_shares(step: CandidateStep) -> bool:
    """V16: return whether the view can act below the Shares."""
    base, weights = _under_shares(step.dims[0])
    if step.kind is MERGE and not _as_many_axes(step, base, weights):
        return False
    return is_left(step, step.kind, (base,), step.size)


def two_sums(step: CandidateStep) -> bool:
    """V17: return whether the pieces of the sum can be two separate sums, without more occurrences of variables."""
    sizes, quotient = step.sizes, step.dims[0].size / step.block
    if step.state.ends.counts.reductions >= step.spec.occurrences.reductions:
        return False
    if not {step.block, quotient} <= {*sizes.sizes(sizes.none)}:
        return False
    pieces = zip(sizes.reduced(step.block), sizes.reduced(quotient), strict=True)
    cut = merged(step) if step.spec.sizes.count_merges else sizes.none
    whole = zip(sizes.reduced(step.dims[0].size), cut, strict=True)
    return all(a + b <= c + d for (a, b), (c, d) in zip(pieces, whole, strict=True))


def _as_many_axes(step: CandidateStep, base: Dim, weights: frozenset[object]) -> bool:
    """Return whether both pieces of a dim may index the weights in place of the whole dim, within the limits."""
    if not weights:
        return True
    pieces = zip(step.sizes[step.block].shared, step.sizes[base.size / step.block].shared, strict=True)
    whole = step.sizes[base.size].shared
    return step.spec.occurrences.shares is None and all(a + b <= c for (a, b), c in zip(pieces, whole, strict=True))


def beside_one_weight(step: CandidateStep) -> bool:
    """V21: return whether the two touching dims have the same topmost weight, so that a Split below its Share joins them."""
    left, right = _last(step.dims[0]), _first(step.dims[1])
    if not (_is_share(left) and _is_share(right)):
        return False
    assert left.operation is not None and right.operation is not None
    if left.operation.parameter != right.operation.parameter:
        return False
    (left_base,), (right_base,) = _bottoms(left), _bottoms(right)
    if step.spec.unordered_input and step.facts[left_base].base is step.facts[right_base].base:
        return False  # U6 may reject it, as no weight tells the pieces apart
    return is_left(step, SPLIT, (left_base, right_base))


def outer_alike(step: CandidateStep) -> bool:
    """C9: return whether two adjacent outer dims are pieces of one axis or sum that may itself be outer."""
    outer = [dim for dim in step.dims if dim in step.outer]
    pairs = [(a, b) for a in outer for b in outer if a is not b and adjacent(step.facts[a], step.facts[b])]
    return any(_one_axis(step, a, b) and _may_be_low_rank(step, a, b) for a, b in pairs)


def _may_be_low_rank(step: CandidateStep, a: Dim, b: Dim) -> bool:
    """Return whether the joint sum of two sums of an earlier weight is small enough (low rank)."""
    if not _under_shares(a)[0].is_reduce:
        return True
    return step.sizes[a.size * b.size].highest <= step.spec.contractions.most_low_rank


def _one_axis(step: CandidateStep, left: Dim, right: Dim) -> bool:
    """Return whether the dims touch as pieces of one axis, or are two sums, and are indexed by the same weights."""
    (left_base, weights), (right_base, others) = _under_shares(_last(left)), _under_shares(_first(right))
    return (
        weights == others
        and adjacent(step.facts[left_base], step.facts[right_base])
        and is_size(step, left_base.size * right_base.size)
    )


def _bottoms(dim: Dim) -> tuple[Dim, ...]:
    assert dim.operation is not None
    return dim.operation.bottoms


def _is_share(dim: Dim) -> bool:
    return dim.operation is not None and dim.operation.primitive is SHARE


def _under_shares(dim: Dim) -> tuple[Dim, frozenset[object]]:
    """Return the dim below a chain of Shares, and the weights of these Shares."""
    weights = set()
    while _is_share(dim):
        assert dim.operation is not None
        weights.add(dim.operation.parameter)
        (dim,) = dim.operation.bottoms
    return dim, frozenset(weights)


def _last(dim: Dim) -> Dim:
    """Return the innermost (last) of the dims that Splits have joined to `dim`."""
    return _end_of_splits(dim, 1)


def _first(dim: Dim) -> Dim:
    """Return the outermost (first) of the dims that Splits have joined to `dim`."""
    return _end_of_splits(dim, 0)


def _end_of_splits(dim: Dim, side: int) -> Dim:
    while dim.operation is not None and dim.operation.primitive is SPLIT:
        dim = dim.operation.bottoms[side]
    return dim

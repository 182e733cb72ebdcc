"""What weights still have to do in a choice of fates, and whether they can: occurrences, elements, FLOPs.

Paper: section 5.4.
"""

from __future__ import annotations

from itertools import chain

from syno.algebra import ONE, Size, product
from syno.space.distance.choice import Choice
from syno.space.sizes import Usage


def may_end(choice: Choice, size: Size) -> bool:
    """Whether a weight may end a piece of that size."""
    return (
        may_weigh(choice, size) and choice.sizes[choice.limits.outer * size].highest <= choice.spec.contractions.largest_outer
    )


def may_weigh(choice: Choice, size: Size) -> bool:
    """Whether a weight may be indexed by a dim of that size."""
    return choice.distance.fits(choice.limits.room, choice.sizes[size].shared)


def ended_usage(choice: Choice) -> Usage | None:
    """Occurrences that the axes use up that weights end; None if that is too much."""
    total = choice.sizes.none
    for axis in choice.ended:
        for _ in range(axis.endings):
            total = _sum(total, choice.sizes[axis.size].shared)
    return total if choice.distance.fits(choice.limits.room, total) else None


def weighed(choice: Choice) -> Usage | None:
    """Occurrences that the axes use up that a weight must end or have; None if that is too much.

    What is cut, or slid over, may be weighed in pieces or with its window: sums there are not counted.
    """
    total = ended_usage(choice)
    assert total is not None
    whole = [members for block, rest, members in choice.groups if rest is ONE and len(block) == 1]
    for axis in (*chain.from_iterable(whole), *(choice.windows if len(choice.windows) == 1 else ()), *choice.repeated):
        if axis.must_weigh:
            total = _sum(total, choice.sizes[axis.size].joined)
    return total if choice.distance.fits(choice.limits.room, total) else None


def weights_large_enough(choice: Choice) -> bool:
    """Whether the new weights may have the least number of elements each, in every layer.

    Together they have at most the product of all axes, each as often as occurrences allow, or once for each weight.
    """
    if choice.parted or not choice.distance.ensured.weights_are_large:
        return True
    used = weighed(choice) or choice.sizes.none
    room = tuple(limit - use for limit, use in zip(choice.limits.room, used, strict=True))
    ended = {id(axis) for axis in choice.ended}
    total = ONE
    for axis in choice.given:
        if not axis.shareable:
            continue
        times = axis.endings if id(axis) in ended else int(axis.must_weigh)
        shared = choice.sizes[axis.size].joined
        more = min((left // use for left, use in zip(room, shared, strict=True) if use), default=choice.contractions)
        total = total * axis.size ** min(times + more, choice.contractions)
    for block, rest, members in choice.groups:
        pieces: set[Size] = set()
        if rest is not ONE:
            pieces = {rest, *(axis.size / rest for axis in members)}
        if len(block) > 1:
            pieces.update(block, *(axis.cuts for axis in members))
        whole = all(axis.shareable for axis in members)
        for piece in pieces:  # small ones go into every weight, whatever they are cut off from
            usage = choice.sizes[piece].joined
            if choice.sizes[piece].is_legal and (not any(usage) or (not whole and choice.distance.fits(room, usage))):
                total = total * piece**choice.contractions
    least = choice.spec.contractions.least_elements
    return choice.sizes[total].lowest >= float(least) ** choice.contractions


def inner_dims_fit(choice: Choice) -> bool:
    """Whether each contraction finds a dim that the weight and the data both are indexed by."""
    need = choice.contractions
    kept = [axis for axis in (*chain.from_iterable(choice.members), *choice.windows, *choice.repeated) if axis.shareable]
    need -= any(axis.must_weigh for axis in kept)
    need -= any(axis.endings == 2 for axis in choice.ended)
    if need <= 0 or not choice.distance.ensured.weights_are_matmuls:
        return True
    used = weighed(choice) or choice.sizes.none
    costs = {choice.sizes[axis.size].joined for axis in kept}
    if len(choice.ended) > 1 and choice.contractions > 1:  # one that a later weight ends
        costs |= {choice.sizes[axis.size].shared for axis in choice.ended}
    if choice.parted or any(rest is not ONE or len(block) > 1 for block, rest, _ in choice.groups):
        return True  # pieces of what is cut may be such dims
    return any(choice.distance.fits(choice.limits.room, _times(need, cost, used)) for cost in costs)


def ends_neighbours(choice: Choice) -> bool:
    """Whether one weight would end two axes that rules keep apart, whichever of equal axes it ends."""
    ended = {id(axis) for axis in choice.ended}
    return any(
        all(id(axis) in ended for axis in choice.given if axis in (choice.given[i], choice.given[j]))
        for i, j in choice.limits.beside
    )


def within_flops(choice: Choice) -> bool:
    """Whether an operator with that many weights may be within the budget.

    No operator needs more than all in one stage for each weight, and a last view; but for strides, whose axes are longer
    above. With one weight it needs no less, but for sums over unweighted elements, which come before, and for
    repeats and windows that are pieces of the output, which come after.
    """
    iterations, distance, spec = choice.limits.iterations, choice.distance, choice.spec
    weights = choice.limits.weighted + choice.contractions
    most = iterations * weights + choice.limits.elements
    if most < distance.least_flops and spec.occurrences.strides == 0:
        return False
    if weights > 1:
        return True
    return iterations / (min(_pool(choice), distance.largest_pooling) * _copies(choice)) <= distance.most_flops


def _pool(choice: Choice) -> float:
    """The product of the sums that may be taken over unweighted elements."""
    pool = 1.0
    for members in choice.members:
        for axis in members:
            pool *= axis.pool
    largest = choice.spec.windows.largest
    for axis in choice.windows:  # a bare sum may stay unweighted if it is joined with another window
        if not axis.window or any(
            o is not axis and choice.sizes[o.size * axis.size].highest <= largest for o in choice.windows
        ):
            pool *= axis.pool
    return pool


def _copies(choice: Choice) -> float:
    """The product of what comes after the sums: repeats, and windows that are pieces of the output."""
    sizes, limits, windows = choice.sizes, choice.limits, choice.spec.windows
    after = (*choice.repeated, *(axis for axis in choice.windows if not axis.only_sums))
    copies = limits.copies * sizes[product(axis.size for axis in after)].highest
    for rest in (rest for rest in choice.rest if rest is not ONE):
        facts = sizes[rest]
        if facts.can_be_window:
            copies *= facts.highest
        elif limits.repeats:
            copies *= min(facts.highest, choice.spec.repeats.largest)
    return copies * float(max(windows.largest, choice.spec.repeats.largest)) ** len(choice.parted)


def _sum(a: Usage, b: Usage) -> Usage:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _times(number: int, a: Usage, b: Usage) -> Usage:
    return tuple(number * x + y for x, y in zip(a, b, strict=True))

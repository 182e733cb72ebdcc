"""Spaces without an operator: found out before a search begins, with what to change."""

from __future__ import annotations

from collections.abc import Iterator

from syno.base.errors import SpecError
from syno.space.options import Budget
from syno.space.space import Space
from syno.space.spec import OperatorSpec

NEAR, FAR = 2, 6  # how much more depth is tried, before other changes and after them
MOST_TENSORS = 4
FEW_SUMS = 3  # reductions that are enough where a change is tried: more would take long
UNBOUNDED = ("merges", "splits", "shifts", "strides", "unfolds")
UNLIMITED = 1e30


def check_not_empty(space: Space) -> None:
    """Raise SpecError if the shape distance or the budget excludes every operator. It says which one change helps."""
    measured = space if space.is_feasible.use_distance else Space(space.spec)
    if not measured.is_feasible(measured.root):
        raise SpecError(empty(space.spec))


def empty(spec: OperatorSpec) -> str:
    """Why there is no operator, and the first single change that leaves room for one."""
    found = f'the space "{spec.name}" holds no operator of at most {spec.depth} primitives'
    for change, wider in _changes(spec):
        space = Space(wider.with_(occurrences=wider.occurrences.with_(reductions=min(FEW_SUMS, wider.occurrences.reductions))))
        if space.is_feasible(space.root):
            return f"{found}; {change}"
    return (
        f"{found}, nor with more FLOPs, more depth or more of any one primitive; look for an output axis that nothing can end, "
        "or an input axis that nothing can make (input, output, variables: occurrences of a primary may be 0)"
    )


def _changes(spec: OperatorSpec) -> Iterator[tuple[str, OperatorSpec]]:
    budget, occurrences, contractions = spec.budget, spec.occurrences, spec.contractions
    if budget.most_flops < Budget().most_flops:
        yield (
            f"the budget excludes them all: raise most_flops, which is {budget.most_flops:.4g}",
            spec.with_(budget=budget.model_copy(update={"most_flops": UNLIMITED})),
        )
    if budget.least_flops > 0:
        yield (
            f"the budget excludes them all: lower least_flops, which is {budget.least_flops:.4g}",
            spec.with_(budget=budget.model_copy(update={"least_flops": 0.0})),
        )
    yield from (_deeper(spec, more) for more in range(1, NEAR + 1))
    for name in UNBOUNDED:
        most = getattr(occurrences, name)
        if most is not None:
            yield f"raise occurrences: {name}, which is {most}", spec.with_(occurrences=occurrences.with_(**{name: None}))
    if occurrences.tensors < MOST_TENSORS:
        wider = occurrences.with_(tensors=occurrences.tensors + 1)
        yield f"raise occurrences: tensors, which is {occurrences.tensors}", spec.with_(occurrences=wider)
    wider = occurrences.with_(reductions=occurrences.reductions + 2)
    yield f"raise occurrences: reductions, which is {occurrences.reductions}", spec.with_(occurrences=wider)
    yield (
        f"raise contractions: largest_outer, which is {contractions.largest_outer}",
        spec.with_(contractions=contractions.with_(largest_outer=10**9)),
    )
    yield from (_deeper(spec, more) for more in range(NEAR + 1, FAR + 1))


def _deeper(spec: OperatorSpec, more: int) -> tuple[str, OperatorSpec]:
    return f"raise depth to {spec.depth + more} or more", spec.with_(depth=spec.depth + more)

"""Facts that rules ensure for every state of a space. The shape distance reads these facts instead of rule ids.

A fact holds only while the rules behind it are on. If a rule is off, the distance must consider more operators possible.

Paper: section 5.4.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self, get_type_hints

from syno.ir.dim import Dim
from syno.ir.primitives import MERGE, SHIFT, UNFOLD
from syno.space.rules.symmetry import Channels, violations
from syno.space.rules.table import RuleSet
from syno.space.steps import CandidateStep, StepKind


class Guarantees(NamedTuple):
    """Facts that hold in every state, one field each, annotated with the ids of the rules that ensure it."""

    # where views go
    merges_below_joins: Annotated[bool, "V1", "V16"]  # no Merge goes on a Split or a Share
    unfolds_below_splits: Annotated[bool, "V11"]  # no Unfold goes on a Split
    shifted_blocks_are_small: Annotated[bool, "V6"]  # of the two pieces of a Merge above a Shift, one is small
    slid_blocks_are_small: Annotated[bool, "V12"]  # of the pieces of a Merge above an Unfold, one is smaller than the window
    no_window_over_sums: Annotated[bool, "V20"]  # no Unfold slides over an axis that stands on reductions alone
    no_sum_as_window: Annotated[bool, "V19"]  # no reduction is the window of an Unfold as it is
    # which axes are kept apart
    adjacent_stay_apart: Annotated[bool, "V4"]  # no Split joins two adjacent axes, such as two sums, alone
    shared_stay_apart: Annotated[bool, "V21"]  # no Split joins two axes of one weight
    outer_not_adjacent: Annotated[bool, "C9"]  # no weight ends two adjacent axes
    # what weights and sums are like
    weights_are_matmuls: Annotated[bool, "C5"]  # each weight has an axis in common with the data, and ends another
    weights_are_large: Annotated[bool, "C6"]  # each weight has a least number of elements
    views_before_weights: Annotated[bool, "C8"]  # after a weight, views go only on axes that stand on it
    chains_are_short: Annotated[bool, "C13"]  # the number of primitives above each other is limited
    sums_come_first: Annotated[bool, "C1"]  # no reduction comes after another primitive
    pooling_is_small: Annotated[bool, "C14"]  # the product of sums over unweighted elements is limited

    @classmethod
    def of(cls, rules: RuleSet) -> Self:
        """Return the facts that a set of active rules ensures."""
        return cls(**{name: all(map(rules.is_on, ids)) for name, ids in ENSURED_BY.items()})


ENSURED_BY = {name: hint.__metadata__ for name, hint in get_type_hints(Guarantees, include_extras=True).items()}
# Rules whose published form looks at the first dim of a step alone, not at its size or other dims.
FIRST_DIM_ALONE: dict[StepKind, tuple[str, ...]] = {
    MERGE: ("V1", "V2", "V16", "V17", "C8"),
    SHIFT: ("V5", "V6", "V16", "V18", "U1", "C8"),
    UNFOLD: ("V11", "V14", "V20"),
}


def is_blocked(rules: RuleSet, step: CandidateStep) -> bool:
    """Return whether a rule rejects all steps of this kind (Merge, Shift, Unfold) on the first dim of `step`."""
    return any(rules.forbids(name, step) for name in FIRST_DIM_ALONE[step.kind])


def may_be_unordered(rules: RuleSet, dim: Dim) -> bool:
    """Return whether the rules on channels let the dim be an unordered axis of the input."""
    return not any(map(rules.is_on, violations({dim: Channels(True, dim)})))

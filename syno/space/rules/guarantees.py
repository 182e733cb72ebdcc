"""Facts that rules ensure for every state of a space. The shape distance asks for these instead of rule ids.

A fact holds only while the rules behind it are on. With a rule off the distance must count more operators as possible.

Paper: section 5.4.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from syno.ir.dim import Dim
from syno.space.rules.symmetry import Channels, violations
from syno.space.rules.table import RuleSet
from syno.space.steps import MERGE, SHIFT, UNFOLD, CandidateStep


class Guarantees(NamedTuple):
    """Facts about every state, one field for each."""

    # where views go
    merges_below_joins: bool  # no Merge goes on a Split or a Share
    unfolds_below_splits: bool  # no Unfold goes on a Split
    shifted_blocks_are_small: bool  # of the two pieces of a Merge above a Shift, one is small
    slid_blocks_are_small: bool  # of the two pieces of a Merge above an Unfold, one is smaller than the window
    no_window_over_sums: bool  # no Unfold slides over an axis that stands on reductions alone
    no_sum_as_window: bool  # no reduction is the window of an Unfold as it is
    # which axes are kept apart
    adjacent_stay_apart: bool  # no Split joins two adjacent axes, such as two sums, alone
    shared_stay_apart: bool  # no Split joins two axes of one weight
    outer_not_adjacent: bool  # no weight ends two adjacent axes
    # what weights and sums are like
    weights_are_matmuls: bool  # each weight has an axis in common with the data, and ends another
    weights_are_large: bool  # each weight has a least number of elements
    views_before_weights: bool  # after a weight, views go only on axes that stand on it
    chains_are_short: bool  # the number of primitives above each other is limited
    sums_come_first: bool  # no reduction comes after another primitive
    pooling_is_small: bool  # the product of sums over unweighted elements is limited

    @classmethod
    def of(cls, rules: RuleSet) -> Self:
        """Return the facts that these rules ensure."""
        return cls(**{name: all(map(rules.is_on, ids)) for name, ids in ENSURED_BY.items()})


ENSURED_BY = {
    "merges_below_joins": ("V1", "V16"),
    "unfolds_below_splits": ("V11",),
    "shifted_blocks_are_small": ("V6",),
    "slid_blocks_are_small": ("V12",),
    "no_window_over_sums": ("V20",),
    "no_sum_as_window": ("V19",),
    "adjacent_stay_apart": ("V4",),
    "shared_stay_apart": ("V21",),
    "outer_not_adjacent": ("C9",),
    "weights_are_matmuls": ("C5",),
    "weights_are_large": ("C6",),
    "views_before_weights": ("C8",),
    "chains_are_short": ("C13",),
    "sums_come_first": ("C1",),
    "pooling_is_small": ("C14",),
}
# Rules whose published form looks at the first dim of a step alone, not at its size or other dims.
FIRST_DIM_ALONE = {
    MERGE: ("V1", "V2", "V16", "V17", "C8"),
    SHIFT: ("V5", "V6", "V16", "V18", "U1", "C8"),
    UNFOLD: ("V11", "V14", "V20"),
}


def is_blocked(rules: RuleSet, step: CandidateStep) -> bool:
    """Return whether a rule rejects every step of this kind (Merge, Shift, Unfold) on the first dim of `step`."""
    return any(rules.forbids(name, step) for name in FIRST_DIM_ALONE[step.kind])


def may_be_unordered(rules: RuleSet, dim: Dim) -> bool:
    """Return whether the rules on channels let the dim be an unordered axis of the input."""
    return not any(map(rules.is_on, violations({dim: Channels(True, dim)})))

"""What the shape distance relies on: each is true because a rule is on.

Paper: section 5.4.
"""

from __future__ import annotations

from typing import NamedTuple

from syno.space.rules import RuleSet


class Reliance(NamedTuple):
    """What holds under the rules that are on."""

    cuts_first: bool  # no Merge goes on a Split or a Share
    slides_first: bool  # no Unfold goes on a Split
    small_shifts: bool  # a Merge above a Shift cuts off small blocks only
    small_windows: bool  # a Merge above an Unfold cuts off what is smaller than the window only
    sums_apart: bool  # no Split joins just two sums
    inner: bool  # each weight has a dim in common with the data, and ends another
    elements: bool  # each weight has a least number of elements
    neighbours: bool  # one weight ends no neighbours
    pooling: bool  # sums over unweighted elements are limited

    @classmethod
    def on(cls, rules: RuleSet) -> Reliance:
        """What these rules make sure of."""
        return cls(
            cuts_first=rules.is_on("V1") and rules.is_on("V16"),
            slides_first=rules.is_on("V11"),
            small_shifts=rules.is_on("V6"),
            small_windows=rules.is_on("V12"),
            sums_apart=rules.is_on("V4"),
            inner=rules.is_on("C5"),
            elements=rules.is_on("C6"),
            neighbours=rules.is_on("C9"),
            pooling=rules.is_on("C14"),
        )

"""The groups of options of a spec, with the defaults and bounds of each option.

Source: the options of the published system; the defaults are those of its Python interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from syno.base.validation import Settings

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
MOST_LAYERS = 10_000  # replaced layers of equal sizes; more are taken for a mistake
DistanceKind = Literal["exact", "paper", "published", "none"]


class OptionGroup(Settings):
    """A group of options. Frozen; unknown names are errors. The text below a field explains the option."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def with_(self, **changes: Any) -> Self:
        """Return a validated copy with these fields changed."""
        return type(self)(**{**self.model_dump(), **changes})


class Occurrences(OptionGroup):
    """Maximum number of occurrences of each primitive in an operator; None for as many as the depth allows."""

    reductions: Count = 5
    """largest number of Reduce primitives"""
    tensors: Annotated[int, Field(ge=2, le=4)] = 2
    """largest number of tensors: the input and the weights; an operator has at least one weight"""
    shares: Count | None = None
    """largest number of Share primitives: axes of all weights together"""
    merges: Count | None = None
    """largest number of Merge primitives"""
    splits: Count | None = None
    """largest number of Split primitives"""
    shifts: Count | None = None
    """largest number of Shift primitives"""
    strides: Count | None = 0
    """largest number of Stride primitives"""
    unfolds: Count | None = None
    """largest number of Unfold primitives"""
    expands: Count | None = None
    """largest number of Expand primitives that repeat elements; those inside contractions are not counted"""
    chain_length: Positive = 6
    """largest number of primitives on one path, above each other"""

    @field_validator("tensors", mode="before")
    @classmethod
    def _one_weight(cls, tensors: Any) -> Any:
        if tensors == 1:
            raise ValueError("1 leaves no weight beside the input, and an operator has at least one; give 2 to 4")
        return tensors


class Sizes(OptionGroup):
    """The sizes that axes may have: products of powers of the variables."""

    enumerations_per_variable: Positive = 5
    """number of exponents that are tried for each variable"""
    variables: Positive = 3
    """largest number of different variables in one size"""
    powers: Positive = 16
    """largest sum of the absolute values of a size's exponents"""
    exact_division: bool = True
    """whether every size must be a whole number in every layer"""
    count_coefficients_in_weights: bool = False
    """whether an axis of a weight counts as an occurrence of the coefficients in its size"""
    count_merges: bool = True
    """whether a Merge that divides by a variable that the size does not contain counts as an occurrence; the published system
    does not count it
    """
    drop_ones: bool = True
    """whether sizes that are 1 in every layer are excluded; the published system searches loops of length 1"""


class Reductions(OptionGroup):
    """Bounds of sums (Reduce primitives)."""

    multiple: Annotated[float, Field(ge=1)] = 4
    """largest product of all sums, as a multiple of the number of elements of the input without bound axes"""
    largest_pooling: Annotated[float, Field(ge=1)] = 8
    """largest product of sums over elements that no weight multiplies"""


class Windows(OptionGroup):
    """The windows of Unfold, the steps of Stride, and Shifts beside blocks."""

    odd: bool = True
    """whether windows must have an odd size in every layer"""
    largest: Annotated[int, Field(gt=1)] = 30
    """largest window of an Unfold"""
    least_ratio: Annotated[float, Field(ge=1)] = 2.0
    """least ratio of an axis's length to its window"""
    largest_strided: Annotated[int, Field(gt=1)] = 30
    """largest axis that a Stride reads"""
    shift_pattern: Annotated[float, Field(ge=0)] = 2.0
    """largest minor axis of a Split that a Shift may rotate, and largest block that a Merge may cut off above a Shift"""


class Contractions(OptionGroup):
    """The weights of contractions."""

    least_elements: Count = 100
    """least number of elements of a weight, in the smallest replaced layer"""
    largest_outer: Positive = 6144
    """largest product of the sizes of outer dims (the output's axes that the input lacks), over all weights of an operator"""
    least_low_rank: Positive = 3
    """least size of an axis that two weights share, in the largest replaced layer"""
    most_low_rank: Positive = 8
    """largest size of an axis that two weights share"""


class Repeats(OptionGroup):
    """Repeated elements: Expand above Merge."""

    largest: Positive = 5
    """largest product of all repeats; 1 allows none"""
    tile: bool = True
    """whether whole axes may be repeated (tile), besides single elements"""


class Budget(OptionGroup):
    """Bounds of the cost of the whole model, for one batch. A multiply-add counts as one FLOP."""

    least_flops: float = 0
    """least FLOPs of the model"""
    most_flops: float = 1e15
    """largest FLOPs of the model"""
    least_parameters: float = 0
    """least number of parameters of the model"""
    most_parameters: float = float("inf")
    """largest number of parameters of the model"""
    most_memory_bytes: float = float("inf")
    """largest memory of one stage of a layer, in bytes: data, weights and result"""
    rest_flops: Annotated[float, Field(ge=0)] = 0
    """FLOPs of the model outside of the replaced layers"""
    rest_parameters: Annotated[float, Field(ge=0)] = 0
    """number of parameters of the model outside of the replaced layers"""

    @model_validator(mode="after")
    def _some_room(self) -> Self:
        for quantity, least, most, rest in (
            ("flops", self.least_flops, self.most_flops, self.rest_flops),
            ("parameters", self.least_parameters, self.most_parameters, self.rest_parameters),
        ):
            if least > most:
                raise ValueError(
                    f"least_{quantity} is {least:g} and most_{quantity} is {most:g}: no model fits; raise most_{quantity}"
                )
            if most <= rest:
                raise ValueError(
                    f"most_{quantity} is {most:g}, but the model outside the replaced layers has {rest:g} already; raise it"
                )
        return self


class LayerValues(OptionGroup):
    """The values of the variables in one kind of replaced layer."""

    values: Mapping[str, Positive]
    """value of each variable, by its name"""
    count: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 1
    """number of replaced layers with these values"""

"""The groups of options of a spec, with the defaults and bounds of each option.

Source: the options of the published system; the defaults are those of its Python interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class OptionGroup(BaseModel):
    """A group of options. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def with_(self, **changes: Any) -> Self:
        """Return a copy with these fields changed, checked again."""
        return type(self)(**{**self.model_dump(), **changes})


class Occurrences(OptionGroup):
    """The most occurrences of each primitive; None for as many as the depth allows."""

    reductions: Count = 5
    tensors: Annotated[int, Field(ge=2, le=4)] = 2  # the input and the weights; an operator has one weight at least
    shares: Count | None = None
    merges: Count | None = None
    splits: Count | None = None
    shifts: Count | None = None
    strides: Count | None = 0
    unfolds: Count | None = None
    expands: Count | None = None  # repeats only; those inside contractions are not counted
    chain_length: Positive = 6  # operations above each other

    @field_validator("tensors", mode="before")
    @classmethod
    def _one_weight(cls, tensors: Any) -> Any:
        if tensors == 1:
            raise ValueError("1 leaves no weight beside the input, and an operator has at least one; give 2 to 4")
        return tensors


class Sizes(OptionGroup):
    """The sizes that are tried."""

    enumerations_per_variable: Positive = 5  # the width of the window of exponents
    variables: Positive = 3  # different ones in one size
    powers: Positive = 16  # the sum of the exponents' absolute values
    exact_division: bool = True  # every size is a whole number for every layer
    count_coefficients_in_weights: bool = False  # whether sharing uses up a coefficient's occurrences
    count_merges: bool = True  # whether dividing by more than a size holds uses them up; the published system forgot
    drop_ones: bool = True  # a size that is 1 for every layer is no size; the published system searched such loops


class Reductions(OptionGroup):
    """Bounds of sums."""

    multiple: Annotated[float, Field(ge=1)] = 4  # of the input's elements (bound axes apart), for all reductions together
    largest_pooling: Annotated[float, Field(ge=1)] = 8  # the product of sums over unweighted elements


class Windows(OptionGroup):
    """Bounds of Unfold and Stride."""

    odd: bool = True
    largest: Annotated[int, Field(gt=1)] = 30
    least_ratio: Annotated[float, Field(ge=1)] = 2.0  # of the axis to its window
    largest_strided: Annotated[int, Field(gt=1)] = 30
    shift_pattern: Annotated[float, Field(ge=0)] = 2.0  # the largest block that a Shift may stand above or below of


class Contractions(OptionGroup):
    """Bounds of weights."""

    least_elements: Count = 100  # of a weight, for the smallest layer
    largest_outer: Positive = 6144  # product of the output-only axes of weights
    least_low_rank: Positive = 3  # the size of an axis that two weights share, for the largest layer
    most_low_rank: Positive = 8


class Repeats(OptionGroup):
    """Bounds of repeated elements: Expand above Merge."""

    largest: Positive = 5  # the product of all repeats; 1 for none
    tile: bool = True  # also of whole axes


class Budget(OptionGroup):
    """Bounds of the whole model, for one batch. Multiply-adds count as one FLOP.

    `rest_*` is what the model has outside of the replaced layers.
    """

    least_flops: float = 0
    most_flops: float = 1e15
    least_parameters: float = 0
    most_parameters: float = float("inf")
    most_memory_bytes: float = float("inf")  # of data, weights and result of any one stage of a layer
    rest_flops: Annotated[float, Field(ge=0)] = 0
    rest_parameters: Annotated[float, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _some_room(self) -> Self:
        for what, least, most in (
            ("flops", self.least_flops, self.most_flops),
            ("parameters", self.least_parameters, self.most_parameters),
        ):
            rest = self.rest_flops if what == "flops" else self.rest_parameters
            if least > most:
                raise ValueError(f"least_{what} is {least:g} and most_{what} is {most:g}: no model fits; raise most_{what}")
            if most <= rest:
                raise ValueError(
                    f"most_{what} is {most:g}, but the model outside the replaced layers has {rest:g} already; raise it"
                )
        return self


class LayerValues(OptionGroup):
    """The values of the variables in one or more of the replaced layers."""

    values: Mapping[str, Positive]
    count: Positive = 1

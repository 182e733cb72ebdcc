"""The base of all groups of settings, and the groups for operators and for the original model's cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from syno.base.errors import SpecError
from syno.base.validation import Settings
from syno.ir.graph import PGraph
from syno.ir.library import find_operator
from syno.ir.rewriting import with_variables
from syno.model.networks import Network, name_of_operator, replacement_named
from syno.model.replacements import AnyOperator
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec

LARGEST_SHARE = 10  # a larger fraction in a relative budget was meant as a percentage


class Section(Settings):
    """A group of settings. Frozen; unknown names, infinite numbers and NaN are errors.

    The text below a field explains the option in `docs/options.md` and in the schema for editors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class OperatorChoice(Section):
    """An operator. Plain text stands for its name."""

    operator: str
    """a known operator's name, a text file, or the folder of a published operator; for baselines and rivals also separable,
    grouped_4 or low_rank_4, which read the same positions as the layer, or narrower_0.5: the layer with half of its channels,
    if no other layer reads them
    """
    rename: Mapping[str, str] = {}
    """new names for the operator's variables, which are those of the spec, as in {k: k_1}"""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, choice: Any) -> Any:
        return {"operator": choice} if isinstance(choice, str) else choice

    @model_validator(mode="after")
    def _names_no_conversion(self) -> Self:
        network = Network.parse(self.key)
        if network.precision is not None:
            raise ValueError(
                f'"{self.key}" is the name of {network.name} in {network.precision.words} (rivals: {{{network.precision.name}: '
                "true}); give the operator another name"
            )
        return self

    def find(self) -> PGraph:
        """Return the operator. Raises a SynoError if it does not exist."""
        return with_variables(find_operator(self.operator), self.rename)

    def replacement(self) -> AnyOperator:
        """Return the operator, or a baseline that no operator expresses. Raises a SynoError if neither exists."""
        named = replacement_named(self.operator)
        if named is None or named.is_whole:
            return self.find()
        if self.rename:
            raise SpecError(f"{self.operator} is no operator by itself and has no variables; leave out rename")
        return named

    @property
    def key(self) -> str:
        """The operator's name in paths and tables."""
        return name_of_operator(self.operator)


class Original(Section):
    """The cost of the original model for one batch: two numbers, or the operator that equals the replaced layers."""

    flops: Annotated[float, Field(gt=0)] | None = None
    """FLOPs of the model; a multiply-add counts as one"""
    parameters: Annotated[float, Field(gt=0)] | None = None
    """parameters of the model"""
    operator: OperatorChoice | None = None
    """instead of the two numbers: the operator that equals the replaced layers, whose cost is counted"""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        numbers = self.flops is not None and self.parameters is not None
        if numbers == (self.operator is not None):
            raise ValueError("give flops and parameters, or operator")
        return self

    def cost(self, spec: OperatorSpec) -> Cost:
        """Return the cost of the original: the two numbers, or the cost of its operator in the layers of the spec."""
        if self.operator is not None:
            return cost(self.operator.find(), spec)
        assert self.flops is not None and self.parameters is not None
        return Cost(self.flops, self.parameters, 0)


class RelativeBudget(Section):
    """Bounds of the cost of the model with an operator, as fractions of the cost of the original model."""

    least_flops: Annotated[float, Field(ge=0)] = 0
    """least fraction of the original model's FLOPs"""
    most_flops: Annotated[float, Field(gt=0)] | None = None
    """largest fraction of the original model's FLOPs"""
    least_parameters: Annotated[float, Field(ge=0)] = 0
    """least fraction of the original model's parameters"""
    most_parameters: Annotated[float, Field(gt=0)] | None = None
    """largest fraction of the original model's parameters"""

    @model_validator(mode="after")
    def _are_shares(self) -> Self:
        for quantity in ("flops", "parameters"):
            least, most = getattr(self, f"least_{quantity}"), getattr(self, f"most_{quantity}")
            for name, share in ((f"least_{quantity}", least), (f"most_{quantity}", most)):
                if share is not None and share > LARGEST_SHARE:
                    raise ValueError(
                        f"{name} is {share:g}, which is {share:g} times the original; shares are fractions: "
                        f"{share / 100:g} for {share:g} %"
                    )
            if most is not None and least > most:
                raise ValueError(
                    f"least_{quantity} is {least:g} and most_{quantity} is {most:g}: no model fits; raise most_{quantity}"
                )
        return self

    def of(self, original: Cost, rest: Cost) -> dict[str, float]:
        """Return the spec's budget: the fractions as absolute bounds.

        Args:
            original: the cost of the original model.
            rest: the cost of its layers that are not replaced.

        Raises SpecError if these layers alone exceed a bound.
        """
        bounds: dict[str, float] = {}
        for name, share in self.model_dump().items():
            if share is None:
                continue
            quantity = name.partition("_")[2]
            whole, outside = getattr(original, quantity), getattr(rest, quantity)
            if name.startswith("most") and share * whole <= outside:
                raise SpecError(
                    f"relative_budget: {name} is {share:g} of the original's {quantity}, and what is not replaced has "
                    f"{outside / whole:.4g} of them; give more than that"
                )
            bounds[name] = share * whole
        return bounds

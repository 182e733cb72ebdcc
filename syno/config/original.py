"""Operators that a config names, and what the original model costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from syno.artifact.lookup import find_operator
from syno.base.errors import SpecError
from syno.config.section import Section
from syno.ir.graph import PGraph
from syno.ir.rewriting import with_variables
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec

LARGEST_SHARE = 10  # of a relative budget; what is larger was meant in percent


class OperatorChoice(Section):
    """An operator; a text alone stands for its name."""

    operator: str  # a known operator, a text file, or a published operator's folder
    rename: Mapping[str, str] = {}  # its variables to those of the spec, as in {k: k_1}

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"operator": given} if isinstance(given, str) else given

    def find(self) -> PGraph:
        """The operator. Raises a SynoError if there is none."""
        return with_variables(find_operator(self.operator), self.rename)


class Original(Section):
    """What the model costs as it is, for one batch: given as numbers, or as the operator that is replaced everywhere."""

    flops: Annotated[float, Field(gt=0)] | None = None  # multiply-adds count as one
    parameters: Annotated[float, Field(gt=0)] | None = None
    operator: OperatorChoice | None = None  # what the replaced layers are, in place of the two numbers

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        numbers = self.flops is not None and self.parameters is not None
        if numbers == (self.operator is not None):
            raise ValueError("give flops and parameters, or operator")
        return self

    def cost(self, spec: OperatorSpec) -> Cost:
        """The numbers; of an operator, counted in the layers of the spec."""
        if self.operator is not None:
            return cost(self.operator.find(), spec)
        assert self.flops is not None and self.parameters is not None
        return Cost(self.flops, self.parameters, 0)


class RelativeBudget(Section):
    """Bounds of the model with an operator, as shares of the original model's."""

    least_flops: Annotated[float, Field(ge=0)] = 0
    most_flops: Annotated[float, Field(gt=0)] | None = None
    least_parameters: Annotated[float, Field(ge=0)] = 0
    most_parameters: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _are_shares(self) -> Self:
        for what in ("flops", "parameters"):
            least, most = getattr(self, f"least_{what}"), getattr(self, f"most_{what}")
            for name, share in ((f"least_{what}", least), (f"most_{what}", most)):
                if share is not None and share > LARGEST_SHARE:
                    raise ValueError(
                        f"{name} is {share:g}, which is {share:g} times the original; shares are fractions: "
                        f"{share / 100:g} for {share:g} %"
                    )
            if most is not None and least > most:
                raise ValueError(f"least_{what} is {least:g} and most_{what} is {most:g}: no model fits; raise most_{what}")
        return self

    def of(self, original: Cost, rest: Cost) -> dict[str, float]:
        """The options of a spec's budget that these are.

        Args:
            original: what the original model costs.
            rest: what it has outside of the layers to replace.

        Raises SpecError if a model has more than the most without any operator.
        """
        found: dict[str, float] = {}
        for name, share in self.model_dump().items():
            if share is None:
                continue
            what = name.partition("_")[2]
            whole, outside = getattr(original, what), getattr(rest, what)
            if name.startswith("most") and share * whole <= outside:
                raise SpecError(
                    f"relative_budget: {name} is {share:g} of the original's {what}, and what is not replaced has "
                    f"{outside / whole:.4g} of them; give more than that"
                )
            found[name] = share * whole
        return found

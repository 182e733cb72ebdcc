"""Settings of a reading requirement: how much of its input an operator must read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from syno.algebra import Size, Valuations, Variable, VariableKind
from syno.base.errors import SpecError, suggestion
from syno.space.options import OptionGroup, Positive

AUTO, NONE = "auto", "none"  # in place of a requirement: what the network asks for; nothing


class Reads(OptionGroup):
    """The least that an output element in the middle must depend on, in every replaced layer.

    Besides the options, sizes of input axes, such as `H`, are given with a number: the least number of different positions that
    are read along an axis of this size, in each layer where the axis has more than one position.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Positive] = Field(init=False)

    applied: Literal[1, 2] = 2
    """number of times that the operator is applied, each time to its own output; 2 as in neighbouring layers, with equal
    numbers of input and output channels
    """
    centred: bool = True
    """whether the output element's own position must be among the positions that are read: along each axis with a requirement
    of n >= 2, in a run of n adjacent positions (along a causal axis, as the last of them). With `along: every`, the whole
    square must be read. Positions wrap around the border. Reading separate blocks, whose elements read only their own block, is
    not enough
    """
    channels: Literal["all", "none"] = "all"
    """whether every position of each unordered axis of the input, such as the channels, must be read: `all` or `none`"""
    along: Literal["every", "any"] = "every"
    """whether every axis of a given size must be read at this number of positions (a square), or at least one axis (a line)"""

    @property
    def positions(self) -> dict[str, int]:
        """The least number of positions to read along an axis, by the size of the axis."""
        return dict(sorted(self.__pydantic_extra__.items()))

    @model_validator(mode="before")
    @classmethod
    def _in_order(cls, sizes: Any) -> Any:
        """Sort the sizes, so that equal requirements have equal ids."""
        if not isinstance(sizes, dict):
            return sizes
        return dict(sorted(sizes.items(), key=lambda pair: str(pair[0])))

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if not self.positions and not self.centred and self.channels == "none":
            raise ValueError("asks for nothing: give numbers of positions (H: 3), centred or channels, or leave it out")
        return self

    def check(self, inputs: Sequence[Size], outputs: Sequence[Size], free: Sequence[Size], layers: Valuations) -> None:
        """Raise SpecError if no operator of these shapes can meet the requirement.

        Args:
            inputs, outputs: shapes of the operators' input and output.
            free: the sizes of the axes of the input that are not bound to the output's.
            layers: the values of the variables in the replaced layers.
        """
        by_name = {str(size): size for size in free}
        for name, least in self.positions.items():
            if name not in by_name:
                known = [*by_name, *type(self).model_fields]
                raise SpecError(
                    f'reads holds "{name}"; there are the axes of the input {", ".join(by_name)} and the options '
                    f"{', '.join(type(self).model_fields)}.{suggestion(name, known)}"
                )
            smallest = _shortest(by_name[name], layers)
            if least > smallest:
                raise SpecError(
                    f"reads asks for {least} positions of {name}, which is {smallest} in the smallest layer; ask for fewer"
                )
        if self.applied > 1 and paired(inputs, outputs) is None:
            raise SpecError(
                f"reads: applied is {self.applied}, but an output [{', '.join(map(str, outputs))}] is no input "
                f"[{', '.join(map(str, inputs))}] of the same operator; give applied: 1"
            )


def least_positions(least: int, length: int) -> int:
    """Return the number of positions to read on an axis of this length by a requirement of `least`.

    It is 1 on an axis of length 1, which has no neighbours.
    """
    return least if length > 1 else 1


def _shortest(size: Size, layers: Valuations) -> int:
    """Return the length of an axis in the smallest layer where it has several positions; 1 if it has only one everywhere."""
    return min([length for row in layers if (length := row.integer(size)) > 1], default=1)


def usual_reads(inputs: Sequence[Size], outputs: Sequence[Size], free: Sequence[Size], layers: Valuations) -> Reads:
    """Return the requirement that is measured for specs without one.

    It is 3 positions around the own one (fewer on shorter axes) along every input axis that has an output axis of equal size,
    and all channels. The operator is applied twice, or once if the output's shape differs from the input's.
    """
    sizes = {str(size): min(3, _shortest(size, layers)) for size in free if size in outputs}
    return Reads.model_validate({"applied": 1 if paired(inputs, outputs) is None else 2, **sizes})


def paired(inputs: Sequence[Size], outputs: Sequence[Size]) -> list[tuple[Variable, Variable]] | None:
    """Return pairs of variables, such as (C_out, C_in), that must be equal for the output to have the input's shape.

    None if no such equations suffice.
    """
    if len(inputs) != len(outputs):
        return None
    ratios = [dict((into / out).exponents) for into, out in zip(inputs, outputs, strict=True) if into is not out]
    pairs = [sorted(ratio, key=ratio.__getitem__) for ratio in ratios if _is_pair(ratio)]
    return [(out, into) for out, into in pairs] if len(pairs) == len(ratios) else None


def _is_pair(ratio: dict[Variable, int]) -> bool:
    return sorted(ratio.values()) == [-1, 1] and all(variable.kind is VariableKind.PRIMARY for variable in ratio)


def _meant(text: Any) -> Any:
    """Return None for the text "none". Raises ValueError for another text."""
    if text == AUTO:
        raise ValueError(
            "auto is what the network of a workload asks for, and there is none; give a mapping such as {H: 3}, or none"
        )
    if isinstance(text, str) and text != NONE:
        raise ValueError(
            f'"{text}" is no requirement; give auto, none, or a mapping such as {{H: 3}}.{suggestion(text, [AUTO, NONE])}'
        )
    return None if text == NONE else text


Requirement = Annotated[Reads | None, BeforeValidator(_meant)]  # as an option of a spec: `none` may be written for None

"""The specification of a search: shapes, variables with limits, the layers to replace, options, budgets.

A spec is a value. `syno.space.options` holds the groups of options and their defaults, `syno.space.presets` the specs of the
paper's searches.

Source: the options of the published system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, field_validator, model_validator

from syno.algebra import Size, Valuations, Variable, VariableKind, VariableTable
from syno.base.errors import SpecError, SynoError, suggestion
from syno.base.validation import explained, read_mapping
from syno.ir.dim import content_id
from syno.space.options import (
    Budget,
    Contractions,
    Count,
    DistanceKind,
    LayerValues,
    Occurrences,
    OptionGroup,
    Positive,
    Reductions,
    Repeats,
    Sizes,
    Windows,
)
from syno.space.reads import Requirement

DEFAULT_OCCURRENCES = 3


class OperatorSpec(OptionGroup):
    """The operators that a search looks for, and their bounds.

    `OperatorSpec.load` reads a spec from a YAML file.

    >>> OperatorSpec(input="N, K", output="N, M", variables="N:0, K, M", layers=[{"N": 1, "K": 64, "M": 10}]).depth
    12
    """

    name: str = "operator"
    """name of the spec"""
    input: str
    """shape of the input, such as `N, C_in: unordered, H, H`; `unordered` marks axes whose positions have no order"""
    output: str
    """shape of the output, as for `input`"""
    variables: str
    """`primaries; coefficients`, each as `name=value:occurrences`, as in `N:0, C_in:2, H:0; k=3:2`. Occurrences limit how often
    reductions and weights may use a variable (default 3; 0 excludes it)
    """
    layers: tuple[LayerValues, ...]
    """values of the variables in each replaced layer"""
    bound_axes: tuple[tuple[Count, Count], ...] = ()
    """pairs of an output axis and an input axis that are identical, such as the batch"""
    causal: tuple[str, ...] = ()
    """sizes of axes, such as seq_len, along which no output position may read a later input position"""
    depth: Positive = 12
    """largest number of primitives of an operator; a contraction counts as one"""
    finalizations: Positive = 2
    """largest number of operators made from one state; they differ in the order of the input's axes"""
    occurrences: Occurrences = Occurrences()
    sizes: Sizes = Sizes()
    reductions: Reductions = Reductions()
    windows: Windows = Windows()
    contractions: Contractions = Contractions()
    repeats: Repeats = Repeats()
    budget: Budget = Budget()
    rules_off: tuple[str, ...] = ()
    """ids of canonicalization rules to switch off; `all` for every built-in rule"""
    rules_on: tuple[str, ...] = ()
    """ids of rules to switch on that are off by default, and your own rules as `package.module:name`"""
    distance: DistanceKind = "exact"
    """shape distance by which a search prunes dead ends: `exact` (loses no operator), `paper` (the paper's formula),
    `published` (the distance of the authors' program), `none`
    """
    reads: Requirement = None
    """how much of the input an operator must read, such as `{H: 3, applied: 2, centred: true, channels: all, along: every}`:
    applied twice, a square of 3 positions around its own position, and all channels; `none`; or `auto`, the default for the
    layers of a workload's network: the requirement that the network defines
    """

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(f'spec "{fields.get("name", "operator")}": {explained(error, type(self))}') from None

    @classmethod
    def load(cls, file: Path) -> OperatorSpec:
        """Read a spec from a YAML file.

        Raises:
            SpecError: the message says what is wrong with the file, and what is allowed.
        """
        return cls(**{"name": file.stem, **read_mapping(file, "a spec", cls)})

    def dump(self) -> str:
        """Return the YAML text that `load` reads back to an equal spec."""
        from syno.base.yaml_text import to_yaml

        return to_yaml(self.model_dump(mode="json", exclude_defaults=True))

    @cached_property
    def id(self) -> str:
        """Content id of all fields except the name, equal for equal specs."""
        defaults = {"causal": not self.causal, "distance": self.distance == "exact", "reads": self.reads is None}
        unsaid = {"name", *(name for name, is_default in defaults.items() if is_default)}
        # Specs had their ids before there were these options.
        return content_id("spec", self.model_dump_json(exclude=unsaid))

    @field_validator("layers", mode="before")
    @classmethod
    def _layers(cls, layers: Any) -> Any:
        """Accept a layer as a plain mapping of values, without `count`."""
        if not isinstance(layers, list | tuple):
            return layers
        return [
            row if isinstance(row, LayerValues) or (isinstance(row, Mapping) and "values" in row) else {"values": row}
            for row in layers
        ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        try:
            self._check()
        except SynoError as error:
            raise ValueError(str(error)) from None
        return self

    @cached_property
    def _declared_variables(self) -> tuple[VariableTable, dict[Variable, int]]:
        limits: dict[str, int] = {}

        def strip(match: re.Match[str]) -> str:
            limits[match["name"]] = int(match["limit"])
            return match["declared"]

        text = re.sub(r"(?P<declared>(?P<name>\w+)\s*(?:=\s*\d+\s*)?):\s*(?P<limit>\d+)", strip, self.variables)
        table = VariableTable.parse(text)
        return table, {table[name]: limits.get(name, DEFAULT_OCCURRENCES) for name in table}

    @property
    def table(self) -> VariableTable:
        """The spec's variables. A variable with the same value in all layers has this value as its default."""
        return self._declared_variables[0]

    @property
    def limits(self) -> Mapping[Variable, int]:
        """The maximum number of occurrences of each variable."""
        return self._declared_variables[1]

    @cached_property
    def valuations(self) -> Valuations:
        """The values of the variables in each replaced layer, as one valuation per layer."""
        return Valuations([self.table.valuation(layer.values) for layer in self.layers for _ in range(layer.count)])

    @cached_property
    def output_sizes(self) -> tuple[Size, ...]:
        """The sizes of the output's axes, in order."""
        return tuple(size for size, _ in _axes(self.output, self.table))

    @cached_property
    def input_sizes(self) -> tuple[Size, ...]:
        """The sizes of the input's axes, in order."""
        return tuple(size for size, _ in _axes(self.input, self.table))

    @cached_property
    def unordered_output(self) -> frozenset[int]:
        """The output axes whose positions have no order."""
        return frozenset(axis for axis, (_, unordered) in enumerate(_axes(self.output, self.table)) if unordered)

    @cached_property
    def unordered_input(self) -> frozenset[int]:
        """The input axes whose positions have no order."""
        return frozenset(axis for axis, (_, unordered) in enumerate(_axes(self.input, self.table)) if unordered)

    def _check(self) -> None:
        if not self.layers:
            raise SpecError("layers is empty: give the values of the variables for at least one layer")
        for title, sizes in (("input", self.input_sizes), ("output", self.output_sizes)):
            if not sizes:
                raise SpecError(f"{title} has no axes; write it as in N, C_in: unordered, H, H")
            for size in sizes:
                size.check_legal(f"an axis of the {title}")
                for row in self.valuations:
                    row.integer(size)
        for out, into in self.bound_axes:
            if out >= len(self.output_sizes) or into >= len(self.input_sizes):
                raise SpecError(
                    f"bound_axes holds [{out}, {into}]; the output has {len(self.output_sizes)} axes, "
                    f"the input {len(self.input_sizes)}, counted from 0"
                )
            if self.output_sizes[out] is not self.input_sizes[into]:
                raise SpecError(
                    f"bound_axes holds [{out}, {into}], but output axis {out} has size {self.output_sizes[out]} "
                    f"and input axis {into} has size {self.input_sizes[into]}; only equal axes can be bound"
                )
        for place in (0, 1):
            ends = [pair[place] for pair in self.bound_axes]
            if len(set(ends)) < len(ends):
                raise SpecError(f"bound_axes binds one axis twice: {list(self.bound_axes)}")
        for named in self.causal:
            for title, sizes in (("input", self.input_sizes), ("output", self.output_sizes)):
                if (count := [*map(str, sizes)].count(named)) != 1:
                    raise SpecError(
                        f'causal holds "{named}", and the {title} has {count} axes of this size; give one that it has once: '
                        f"{', '.join(map(str, sizes))}"
                    )
        self._check_input_axes()
        if self.contractions.least_low_rank > self.contractions.most_low_rank:
            raise SpecError(
                f"contractions: least_low_rank is {self.contractions.least_low_rank}, above most_low_rank "
                f"{self.contractions.most_low_rank}: no two weights could share an axis; lower the one or raise the other"
            )
        if self.windows.odd and not self.sizes.exact_division:
            raise SpecError("windows: odd needs sizes: exact_division, else a window's parity is not known; switch odd off")
        if self.reads is not None:
            bound = {into for _, into in self.bound_axes}
            free = [size for axis, size in enumerate(self.input_sizes) if axis not in bound]
            self.reads.check(self.input_sizes, self.output_sizes, free, self.valuations)

    def _check_input_axes(self) -> None:
        bound = {into for _, into in self.bound_axes}
        for axis, size in enumerate(self.input_sizes):
            primaries = [(v.name, e) for v, e in size.exponents if v.kind is VariableKind.PRIMARY]
            if axis not in bound and (len(primaries) != 1 or primaries[0][1] != 1):
                raise SpecError(
                    f"input axis {axis} has size {size}: an axis of the input has one primary variable, to the power of one "
                    "(and any coefficients); declare a primary variable for it"
                )


def _axes(shape: str, table: VariableTable) -> list[tuple[Size, bool]]:
    axes = []
    for part in filter(None, (piece.strip() for piece in shape.strip().strip("[]").split(","))):
        size, _, mark = (piece.strip() for piece in part.partition(":"))
        if mark not in ("", "unordered"):
            raise SpecError(
                f'"{part}" marks an axis as "{mark}"; the one mark there is: unordered.{suggestion(mark, ["unordered"])}'
            )
        axes.append((table.size(size), bool(mark)))
    return axes

"""The pGraph: one operator, as a value.

A pGraph consists of the dims that index the input tensor, those that index each weight, and those that are expanded.
The dims know everything below them, so these tuples are the whole operator. Its content id depends on nothing else.

Paper: section 4.1 (pGraphs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import ClassVar

from syno.algebra import ONE, Size, Valuation, Variable, VariableKind, VariableTable, product
from syno.algebra.limits import LARGEST_NUMBER
from syno.base.errors import GraphError, SizeError, SpecError
from syno.base.files import LONGEST_NAME, check_name
from syno.ir.dim import Dim, Operation, content_id, expand
from syno.ir.primitives import REDUCE, SHARE
from syno.ir.structure import Weight, check, operations_below, ordered

LONGEST_OPERATOR_NAME = LONGEST_NAME + 20  # the name of an experiment and the number of a trial


@dataclass(frozen=True)
class PGraph:
    """A complete operator. Equal pGraphs have equal ids; `name` and `defaults` are labels, which the id ignores.

    A notebook shows the picture of `syno.to_svg`.

    >>> import syno
    >>> syno.OPERATORS["matmul"]()
    <pGraph matmul 49759331: [M, K], [K, N] -> [M, N]>

    Attributes:
        output: the output's axes, in order.
        input: the dims that index the input tensor, in order of its axes.
        weights: for each weight, the dims that index it; weight `w1` is `weights[0]`.
        expansions: the dims that index no tensor.
        name: a label, which can be the name of a file (see `check_name`).
        defaults: values of variables, used where a valuation has none.
    """

    output: tuple[Dim, ...]
    input: tuple[Dim, ...]
    weights: tuple[Weight, ...] = ()
    expansions: tuple[Dim, ...] = ()
    name: str = field(default="operator", compare=False)
    defaults: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)
    # The picture that notebooks show. The package sets it, since the drawing imports this module.
    _repr_svg_: ClassVar[Callable[[PGraph], str]]

    def __post_init__(self) -> None:
        try:
            check_name(self.name, "an operator's name", LONGEST_OPERATOR_NAME)
        except SpecError as error:
            raise GraphError(str(error)) from None
        object.__setattr__(self, "expansions", tuple(sorted(self.expansions, key=lambda dim: dim.id)))
        check(self._below, self.output, self.input, self.weights, self.expansions)

    # ---- parts --------------------------------------------------------------------------------------------------

    @cached_property
    def id(self) -> str:
        """Content id of the operator, 32 hexadecimal digits."""
        parts = ["pgraph"]
        for title, dims in (("output", self.output), ("input", self.input), ("expand", self.expansions)):
            parts += [title, *(dim.id for dim in dims)]
        for weight in self.weights:
            parts += ["weight", *(dim.id for dim in weight)]
        return content_id(*parts)

    @property
    def tops(self) -> tuple[Dim, ...]:
        """Every dim at the top: input axes, weight axes, expansions."""
        return (*self.input, *(dim for weight in self.weights for dim in weight), *self.expansions)

    @cached_property
    def _below(self) -> tuple[Operation, ...]:
        return operations_below(self.tops)

    @cached_property
    def reduces(self) -> tuple[Dim, ...]:
        """The reduction loops, by size, then by number."""
        loops = [operation for operation in self._below if operation.primitive is REDUCE]
        return tuple(loop.tops[0] for loop in sorted(loops, key=_reduce_order))

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """All operations except the Reduces, each after the operations below it, in an order that depends on content only."""
        return self._order[0]

    @cached_property
    def labels(self) -> Mapping[Dim, str]:
        """A label for each dim: `i0` for output axes, `r0` for reductions, `w1[0]` for axes of weights, `d0` for others."""
        return self._order[1]

    @cached_property
    def _order(self) -> tuple[tuple[Operation, ...], dict[Dim, str]]:
        labels = {dim: f"i{index}" for index, dim in enumerate(self.output)}
        labels |= {dim: f"r{index}" for index, dim in enumerate(self.reduces)}
        axes = {dim: f"w{number}[{axis}]" for number, weight in enumerate(self.weights, 1) for axis, dim in enumerate(weight)}
        return ordered((*self._below, *self.expand_operations), labels, axes)

    @cached_property
    def expand_operations(self) -> tuple[Operation, ...]:
        """The Expand operations, one above each expansion."""
        return tuple(expand(dim) for dim in self.expansions)

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """All sizes that must be whole numbers: those of dims, and the parameters of Merges and Strides."""
        factors = (operation.parameter for operation in self.operations if isinstance(operation.parameter, Size))
        return tuple(dict.fromkeys([*(dim.size for dim in self.labels), *factors]))

    @cached_property
    def variables(self) -> VariableTable:
        """The variables that occur in the operator, with their defaults."""
        used: set[Variable] = {variable for size in self.sizes for variable in size.variables}
        names = {variable.name for variable in used}
        return VariableTable(used, {name: value for name, value in self.defaults.items() if name in names})

    def valuation(self, values: Mapping[str, int] | None = None, **more: int) -> Valuation:
        """Return values for all variables: those in `values` and `more`, else the defaults.

        Raises:
            ValuationError: a variable is missing or unknown.
            SizeError: a size is not a whole number, or too large.
        """
        valuation = self.variables.valuation(values, **more)
        self.check_sizes(valuation)
        return valuation

    def check_sizes(self, valuation: Valuation) -> None:
        """Raise SizeError if a size is not a whole number at these values of all variables, or too large."""
        for size in self.sizes:
            if valuation.integer(size) > LARGEST_NUMBER:
                raise SizeError(f"size {size} is larger than {LARGEST_NUMBER} for {valuation}; no axis may be longer than that")

    def weight_sizes(self, weight: int) -> tuple[Size, ...]:
        """Return the shape of weight number `weight`, counted from 1, as sizes."""
        return tuple(dim.size for dim in self.weights[weight - 1])

    @cached_property
    def iteration_space(self) -> Size:
        """The product of the sizes of all output axes and reductions."""
        return product(dim.size for dim in (*self.output, *self.reduces))

    @cached_property
    def runtime_variables(self) -> frozenset[str]:
        """The variables that a generated module reads from the shape of its input, such as a picture's height.

        They occur in no weight and no reduction. The module takes any value for them with which all sizes are whole numbers.
        """
        return frozenset(self.runtime_axes)

    @cached_property
    def runtime_axes(self) -> Mapping[str, tuple[int, Size]]:
        """For each of the `runtime_variables`, the first input axis from which it is read, and the factor of the axis' length.

        The axis has the length factor * variable. The factor is 1, or a product of other variables, as in `stride*H`.
        """
        fixed = {v.name for dim in (*chain(*self.weights), *self.reduces) for v in dim.size.variables}
        found: dict[str, tuple[int, Size]] = {}
        for axis, dim in enumerate(self.input):
            if (name := str(dim.size)) in self.variables and name not in fixed:
                found.setdefault(name, (axis, ONE))
        for axis, dim in enumerate(self.input):
            free = [v for v in dim.size.variables if v.kind is VariableKind.PRIMARY and v.name not in fixed]
            if (
                len(free) == 1
                and dim.size.exponent(free[0]) == 1
                and found.keys().isdisjoint(v.name for v in dim.size.variables)
            ):
                factor = dim.size / Size({free[0]: 1})
                if factor.is_polynomial:
                    found[free[0].name] = (axis, factor)
        return found

    def runtime_values(self, shape: Sequence[int], sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the values of the `runtime_variables` for an input of this shape; `sizes` are the other variables' values."""
        values = {}
        for name, (axis, factor) in self.runtime_axes.items():
            values[name] = shape[axis] // math.prod(sizes[variable.name] ** power for variable, power in factor.exponents)
        return values

    @cached_property
    def unchanged_variables(self) -> frozenset[str]:
        """The variables that occur only in axes that pass unchanged from the input to the output, such as a batch size.

        They are among `runtime_variables`, and no computation depends on them.
        """
        passing = set(self.input) & set(self.output)
        needed = {v for dim in self.labels if dim not in passing for v in dim.size.variables}
        bare = [dim for dim in passing if len(dim.size.exponents) == 1 and dim.size.exponents[0][1] == 1]
        return frozenset(v.name for dim in bare for v in dim.size.variables if v not in needed) - {
            v.name for dim in passing if dim not in bare for v in dim.size.variables
        }

    # ---- variants, text -----------------------------------------------------------------------------------------

    def renamed(self, name: str, **defaults: int) -> PGraph:
        """Return the same operator with another name, and with further default values of variables."""
        return replace(self, name=name, defaults={**self.defaults, **defaults})

    def mapped(
        self,
        dims: Mapping[Dim, Dim],
        *,
        input: Iterable[Dim] | None = None,  # noqa: A002  # the language's own word
        weights: Iterable[Iterable[Dim]] | None = None,
        expansions: Iterable[Dim] | None = None,
    ) -> PGraph:
        """Return an operator with the dims `dims[axis]` in place of this operator's.

        Args:
            dims: a new dim for each output axis and for each dim of the tensors, usually `Rebuilt(replaced)`.
            input, weights, expansions: this operator's dims in another order, or a subset; None: all of its own.

        Raises GraphError if the new dims break a rule of the language.
        """
        return replace(
            self,
            output=tuple(sorted((dims[axis] for axis in self.output), key=lambda axis: axis.position)),
            input=tuple([dims[axis] for axis in (self.input if input is None else input)]),
            weights=tuple([tuple([dims[axis] for axis in axes]) for axes in (self.weights if weights is None else weights)]),
            expansions=tuple([dims[axis] for axis in (self.expansions if expansions is None else expansions)]),
        )

    def __str__(self) -> str:
        """Return the operator's text: one primitive per line, the id at the end. `syno.parse` reads it back."""
        label = self.labels

        def typed(dims: Iterable[Dim]) -> str:
            return ", ".join(f"{label[dim]}:{dim.size}" for dim in dims)

        lines = [f"operator {self.name}", f"variables {self.variables}", f"output {typed(self.output)}"]
        lines += [f"{typed([dim])} = Reduce()" for dim in self.reduces]
        for operation in self.operations:
            arguments = [label[dim] for dim in operation.bottoms]
            if operation.primitive is SHARE:
                arguments.append(label[operation.tops[1]])
            elif operation.parameter is not None:
                parameter = operation.parameter
                arguments.append(f"{parameter:+d}" if isinstance(parameter, int) else str(parameter))
            call = f"{operation.primitive.name}({', '.join(arguments)})"
            tops = typed(dim for dim in operation.tops if not dim.is_weight_side)
            lines.append(f"{tops} = {call}" if tops else call)
        lines.append(f"input {typed(self.input)}")
        for number, weight in enumerate(self.weights, 1):
            lines.append(f"weight w{number}[{', '.join(str(dim.size) for dim in weight)}]")
        return "\n".join([*lines, f"id {self.id}"]) + "\n"

    def __repr__(self) -> str:
        def shape(dims: Sequence[Dim]) -> str:
            return f"[{', '.join(str(dim.size) for dim in dims)}]"

        weights = "".join(f", {shape(weight)}" for weight in self.weights)
        return f"<pGraph {self.name} {self.id[:8]}: {shape(self.input)}{weights} -> {shape(self.output)}>"

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self.output, self.input, self.weights, self.expansions)
        return (PGraph, (*parts, self.name, dict(self.defaults)))


def _reduce_order(loop: Operation) -> tuple[str, int]:
    assert isinstance(loop.parameter, tuple)
    return (str(loop.parameter[0]), loop.parameter[1])

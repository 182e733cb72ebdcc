"""Dims: the edges of a pGraph, as frozen, hash-consed values.

A dim is a coordinate together with its size: an axis of the output, or a top of an operation. An operation refers to the dims
below it, so that a dim contains the whole expression under it. Building the same dim twice returns the same object. Its content
id is the same in every process and on every machine.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import Any

from syno.algebra import Size
from syno.algebra.limits import MOST_HEIGHT
from syno.base.errors import GraphError
from syno.ir.primitives import (
    EXPAND,
    MERGE,
    REDUCE,
    SHARE,
    SHIFT,
    SPLIT,
    STRIDE,
    TABLE,
    UNFOLD,
    Arithmetic,
    Parameter,
    Primitive,
)

_operations: dict[tuple[Any, ...], Operation] = {}
_output_axes: dict[tuple[int, Size], Dim] = {}


def content_id(*parts: str) -> str:
    """Return 128 bits of blake2b over the parts, as 32 hexadecimal digits; they are the same in every process."""
    return blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()


def _size_content(size: Size) -> str:
    return "*".join(f"{variable.kind.value}:{variable.name}^{exponent}" for variable, exponent in size.exponents)


class Operation:
    """A primitive applied to the dims below it. Hash-consed."""

    primitive: Primitive
    parameter: Parameter
    bottoms: tuple[Dim, ...]
    tops: tuple[Dim, ...]

    def __new__(cls, primitive: Primitive, parameter: Parameter, bottoms: tuple[Dim, ...]) -> Operation:
        """Return the operation with these arguments; equal operations are one object.

        Raises GraphError or SizeError if they break a rule of the language.
        """
        key = (primitive.name, parameter, bottoms)
        found = _operations.get(key)
        if found is None:
            made = object.__new__(cls)
            made._set(primitive, parameter, bottoms)
            found = _operations.setdefault(key, made)
        return found

    def _set(self, primitive: Primitive, parameter: Parameter, bottoms: tuple[Dim, ...]) -> None:
        """Set the attributes of a new operation, once its arguments are checked."""
        if len(bottoms) != len(primitive.bottoms):
            takes = f"{len(primitive.bottoms)} ({', '.join(primitive.bottoms)})" if primitive.bottoms else "none"
            raise GraphError(f"{primitive.name} takes {takes} dims below it; given: {len(bottoms)}")
        if len(set(bottoms)) < len(bottoms):
            raise GraphError(f"{primitive.name} was given the same dim twice: {bottoms[0]!r}")
        primitive.check_parameter(parameter)
        if isinstance(parameter, Size):
            parameter.check_legal(f"the parameter of {primitive.name}")
        for dim in bottoms:
            if dim.is_weight_side:
                raise GraphError(f"{primitive.name} above {dim!r}: a weight's axis is final, apply views to the data side")
        self.primitive, self.parameter, self.bottoms = primitive, parameter, bottoms
        sizes = primitive.top_sizes([dim.size for dim in bottoms], parameter)
        for name, size in zip(primitive.tops, sizes, strict=True):
            size.check_legal(f"the {name} above {primitive.name}({', '.join(map(repr, (*bottoms,)))})")
        height = 1 + max((dim.height for dim in bottoms), default=-1)
        if height > MOST_HEIGHT:  # many functions on pGraphs are recursive
            raise GraphError(
                f"{primitive.name} above {MOST_HEIGHT} other primitives; at most {MOST_HEIGHT} may lie above each other"
            )
        self.tops = tuple(Dim(self, position, size, height) for position, size in enumerate(sizes))

    @cached_property
    def id(self) -> str:
        """Content id of the operation: a hash of the primitive, the parameter and the ids of the dims below."""
        match self.parameter:
            case Size() as size:
                parameter = _size_content(size)
            case (domain, number):
                parameter = f"{_size_content(domain)}#{number}"
            case other:
                parameter = str(other)
        return content_id(self.primitive.name, parameter, *(dim.id for dim in self.bottoms))

    def index(self, arithmetic: Arithmetic, coordinates: list[Any]) -> tuple[Any, ...]:
        """Return the coordinates of the tops from those of the bottoms, by the primitive's row of Table 1."""
        return self.primitive.index(arithmetic, coordinates, [dim.size for dim in self.bottoms], self.parameter)

    def __repr__(self) -> str:
        return f"{self.primitive.name}({', '.join(map(repr, self.bottoms))})"

    def __reduce__(self) -> tuple[Any, ...]:  # rows of the table hold functions, so the name is pickled
        return (_rebuild, (self.primitive.name, self.parameter, self.bottoms))


class Dim:
    """A coordinate with its size: an output axis (`operation` is None) or a top of an operation. Hash-consed."""

    operation: Operation | None
    position: int  # among the operation's tops, or the output's axes
    size: Size
    height: int  # the number of operations on the longest path down to the output
    is_reduce: bool  # True for a reduction loop
    is_weight_side: bool  # True for an axis of a weight: the right side of a Share

    def __init__(self, operation: Operation | None, position: int, size: Size, height: int = 0) -> None:
        """Make a dim. Call `output_axis` and the functions below instead: they make each dim only once."""
        self.operation, self.position, self.size, self.height = operation, position, size, height
        self.is_reduce = self.primitive is REDUCE
        self.is_weight_side = self.primitive is SHARE and position == 1

    @cached_property
    def id(self) -> str:
        """Content id of the expression under this dim."""
        if self.operation is None:
            return content_id("Output", str(self.position), _size_content(self.size))
        return content_id("top", str(self.position), self.operation.id)

    @property
    def primitive(self) -> Primitive | None:
        """The primitive above which this dim lies; None for an output axis."""
        return None if self.operation is None else self.operation.primitive

    @property
    def is_output(self) -> bool:
        """Whether the dim is an axis of the output."""
        return self.operation is None

    @cached_property
    def discards(self) -> bool:
        """Whether a Stride below skips elements and is not the window of an Unfold (the pairing rule of Stride)."""
        if self.operation is None or not self.operation.bottoms:
            return False
        if self.primitive is STRIDE:
            return True
        below = self.operation.bottoms[:1] if self.primitive is UNFOLD else self.operation.bottoms
        return any(dim.discards for dim in below)

    def __repr__(self) -> str:
        """Return a short text for messages: the primitive below, and the size."""
        if self.operation is None:
            return f"output axis {self.position}:{self.size}"
        if self.is_reduce:
            return f"Reduce:{self.size}"
        return f"{self.operation.primitive.tops[self.position]} of {self.operation.primitive.name}:{self.size}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_dim, (self.operation, self.position, self.size))


def _rebuild_dim(operation: Operation | None, position: int, size: Size) -> Dim:
    return output_axis(position, size) if operation is None else operation.tops[position]


def _rebuild(name: str, parameter: Parameter, bottoms: tuple[Dim, ...]) -> Operation:
    return Operation(TABLE[name], parameter, bottoms)


def output_axis(index: int, size: Size) -> Dim:
    """Return axis `index` of the output."""
    found = _output_axes.get((index, size))
    if found is None:
        found = _output_axes.setdefault((index, size), Dim(None, index, size.check_legal(f"output axis {index}")))
    return found


def reduce(domain: Size, number: int = 0) -> Dim:
    """Return a reduction loop over `domain`; `number` tells loops of equal domains apart."""
    return Operation(REDUCE, (domain, number), ()).tops[0]


def split(major: Dim, minor: Dim) -> Dim:
    """Return the axis that is read at `B*major + minor`, where B is the size of `minor`."""
    return Operation(SPLIT, None, (major, minor)).tops[0]


def merge(whole: Dim, block: Size) -> tuple[Dim, Dim]:
    """Return the two axes that are read at `whole // block` and `whole % block`."""
    quotient, remainder = Operation(MERGE, block, (whole,)).tops
    return quotient, remainder


def shift(dim: Dim, amount: int) -> Dim:
    """Return the axis that is read at `(dim + amount) % size`."""
    return Operation(SHIFT, amount, (dim,)).tops[0]


def unfold(position: Dim, window: Dim) -> Dim:
    """Return the axis that is read at `position + window - K//2`, where K is the size of `window`; zero outside."""
    return Operation(UNFOLD, None, (position, window)).tops[0]


def stride(dim: Dim, factor: Size) -> Dim:
    """Return the axis, `factor` times as long, that is read at `factor * dim`."""
    return Operation(STRIDE, factor, (dim,)).tops[0]


def share(dim: Dim, weight: int) -> tuple[Dim, Dim]:
    """Return the data's axis and the weight's axis, both read at `dim`."""
    data, axis = Operation(SHARE, weight, (dim,)).tops
    return data, axis


def expand(dim: Dim) -> Operation:
    """Return the operation that ends `dim`: no tensor above is indexed by it."""
    return Operation(EXPAND, None, (dim,))

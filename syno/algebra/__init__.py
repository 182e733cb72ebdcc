"""Sizes, valuations, and coordinate expressions with an exact simplifier."""

from syno.algebra.expression import Expression, half, iterator
from syno.algebra.size import ONE, Size, Trait, product
from syno.algebra.variable import Variable, VariableKind
from syno.algebra.variables import SizeValues, Valuation, Valuations, VariableTable

__all__ = [
    "ONE",
    "Expression",
    "Size",
    "SizeValues",
    "Trait",
    "Valuation",
    "Valuations",
    "Variable",
    "VariableKind",
    "VariableTable",
    "half",
    "iterator",
    "product",
]  # fmt: skip

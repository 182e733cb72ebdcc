"""Sizes, valuations, and coordinate expressions with an exact simplifier."""

from syno.algebra.expression import Expression, half, iterator
from syno.algebra.size import ONE, Size, Trait, product
from syno.algebra.variable import Kind, Variable
from syno.algebra.variables import SizeValues, Valuation, Valuations, VariableTable

__all__ = [
    "ONE", "Expression", "Kind", "Size", "SizeValues", "Trait", "Valuation", "Valuations", "Variable", "VariableTable",
    "half", "iterator", "product",
]  # fmt: skip

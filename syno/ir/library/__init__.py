"""The library of known operators: a table of functions, each of which returns a pGraph.

>>> graph = OPERATORS["conv2d"]()
>>> graph.weight_sizes(1)
(Size(C_out), Size(C_in), Size(k), Size(k))
"""

from syno.ir.builder import OPERATORS, KnownOperator
from syno.ir.library import published, rearranging, standard  # noqa: F401  # importing them fills the table

__all__ = ["OPERATORS", "KnownOperator"]

"""The library of known operators: a table of functions, each of which returns a pGraph.

>>> graph = OPERATORS["conv2d"]()
>>> graph.weight_sizes(1)
(Size(C_out), Size(C_in), Size(k), Size(k))
"""

from syno.ir.library import nas_pte, published, rearranging, standard  # noqa: F401  # importing them fills the table
from syno.ir.library.table import OPERATORS, KnownOperator

__all__ = ["OPERATORS", "KnownOperator"]

"""The table that the library's modules fill."""

from __future__ import annotations

from collections.abc import Callable

from syno.base.registry import Registry
from syno.ir.graph import PGraph

KnownOperator = Callable[[], PGraph]

OPERATORS: Registry[KnownOperator] = Registry("operator")


def known_operator(function: KnownOperator) -> KnownOperator:
    """Enter `function` in `OPERATORS` under its own name."""
    return OPERATORS.register(function.__name__)(function)

"""Names in a generated module: its class's, and those of its constructor's arguments."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping

from syno.algebra.code_names import code_name, stem
from syno.ir.graph import PGraph

# What a constructor uses besides sizes.
NOT_AS_ARGUMENT = {"ValueError", "device", "dtype", "functional", "init", "math", "nn", "seed", "self", "super", "torch"}


def class_name(graph: PGraph) -> str:
    """`low_rank` -> `LowRank`; with "Operator" before it where that is no name of a class, as with `none` or `1x1`."""
    words = [word for word in re.split(r"\W|_", graph.name) if word]
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Operator{name}"


def argument_name(variable: str) -> str:
    """The name of a variable as an argument of the generated constructor: its own, unless the constructor needs that."""
    return code_name(variable) if stem(variable) in NOT_AS_ARGUMENT else variable


def constructor_sizes(graph: PGraph, values: Mapping[str, int]) -> dict[str, int]:
    """The sizes that the constructor of a generated module takes, by the names of its arguments.

    `values` holds a value for every variable; those that may have any value, such as a batch size, are no arguments.
    """
    return {argument_name(name): value for name, value in values.items() if name not in graph.runtime_variables}

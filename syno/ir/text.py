"""The text of an operator: everything it is, one primitive per line, and back.

    operator conv1d
    variables C_in, C_out, N, W; k=3
    output i0:N, i1:C_out, i2:W
    r0:C_in = Reduce()
    r1:k = Reduce()
    d0:C_out = Share(i1, w1[0])
    ...

This text is what operators are stored and exchanged as: it depends on no search, no option, no version.
"""

from __future__ import annotations

from syno.algebra.limits import shortened
from syno.base.errors import ParseError
from syno.base.names import name_from
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.primitives import SHARE
from syno.ir.text_parser import Parser

LONGEST_MESSAGE = 1_000  # characters: messages quote what was given


def to_text(graph: PGraph) -> str:
    """The operator as text, ending with its id. `parse` gives it back, with the same id."""
    label = graph.labels

    def typed(dim: Dim) -> str:
        return f"{label[dim]}:{dim.size}"

    lines = [f"operator {graph.name}", f"variables {graph.variables}"]
    lines.append("output " + ", ".join(map(typed, graph.output)))
    lines += [f"{typed(dim)} = Reduce()" for dim in graph.reduces]
    for operation in graph.operations:
        arguments = [label[dim] for dim in operation.bottoms]
        if operation.primitive is SHARE:
            arguments.append(label[operation.tops[1]])
        elif operation.parameter is not None:
            parameter = operation.parameter
            arguments.append(f"{parameter:+d}" if isinstance(parameter, int) else str(parameter))
        call = f"{operation.primitive.name}({', '.join(arguments)})"
        tops = ", ".join(typed(dim) for dim in operation.tops if not dim.is_weight_side)
        lines.append(f"{tops} = {call}" if tops else call)
    lines.append("input " + ", ".join(map(typed, graph.input)))
    for number, weight in enumerate(graph.weights, 1):
        lines.append(f"weight w{number}[{', '.join(str(dim.size) for dim in weight)}]")
    return "\n".join([*lines, f"id {graph.id}"]) + "\n"


def parse(text: str, source: str = "operator text") -> PGraph:
    """Read an operator. `#` starts a comment; the `id` line may be left out, else it must be right.

    Raises ParseError that names `source` and the line: also where the text is beyond a limit of `syno.algebra.limits`.
    """
    try:
        return Parser(source).parse(text)
    except ParseError as error:
        raise ParseError(shortened(str(error), LONGEST_MESSAGE)) from error.__cause__


def parse_stored(text: str, source: str = "operator text", name: str | None = None) -> PGraph:
    """Read an operator that a program has stored, and give it this name; by default one that is made of its own.

    Earlier versions named operators after their space or network, with names that `parse` refuses, such as "my_network:make".
    Raises ParseError as `parse`.
    """
    first, newline, rest = text.partition("\n")
    if not first.startswith("operator "):
        return parse(text, source)
    return parse(f"operator {name or name_from(first.removeprefix('operator ').strip())}{newline}{rest}", source)

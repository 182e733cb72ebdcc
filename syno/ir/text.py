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

import re
from collections import Counter
from collections.abc import Iterator

from syno.algebra import Size, VariableTable
from syno.errors import ParseError, SynoError, suggestion
from syno.ir.dim import Dim, Operation, output_axis, reduce
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, REDUCE, SHARE, TABLE, Parameter, ParameterKind

_NAME = r"[A-Za-z_]\w*"
_DIM = rf"({_NAME})\s*:\s*(\S+)"


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

    Raises ParseError that names `source` and the line.
    """
    return _Parser(source).parse(text)


class _Parser:
    """Reads line by line; `where` is the place that errors name."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.where = source
        self.name = "operator"
        self.table: VariableTable | None = None
        self.output: list[Dim] | None = None
        self.input: list[Dim] | None = None
        self.dims: dict[str, Dim] = {}
        self.unused: dict[str, str] = {}  # names, and where they are defined
        self.weight_axes: dict[tuple[int, int], Dim] = {}
        self.weight_lines: dict[int, tuple[str, list[Size]]] = {}
        self.expansions: list[Dim] = []
        self.reduces: Counter[Size] = Counter()
        self.id: str | None = None

    def parse(self, text: str) -> PGraph:
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            self.where = f'{self.source}, line {number} "{line}"'
            try:
                self._line(line)
            except ParseError as error:
                raise self._located(error) from None
            except SynoError as error:
                raise ParseError(f"{self.where}: {error}") from error
        self.where = self.source
        return self._finish()

    def _located(self, error: ParseError) -> ParseError:
        return error if str(error).startswith(self.where) else ParseError(f"{self.where}: {error}")

    def _line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "operator":
                self.name = rest.strip()
            case "variables":
                self.table = VariableTable.parse(rest)
            case "output":
                if self.output is not None:
                    raise ParseError("the output is declared already; it has one line")
                axes = enumerate(self._typed(rest))
                self.output = [self._define(name, output_axis(index, size)) for index, (name, size) in axes]
            case "input":
                if self.input is not None:
                    raise ParseError("the input is declared already; it has one line")
                self.input = [self._input_axis(name, size) for name, size in self._typed(rest)]
            case "weight":
                self._weight_line(rest)
            case "id":
                self.id = rest.strip()
            case _:
                self._primitive_line(line)

    def _typed(self, text: str) -> Iterator[tuple[str, Size]]:
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            match = re.fullmatch(_DIM, part)
            if not match:
                raise ParseError(f'"{part}" is not "name:size", as in "i0:C_out"')
            yield match[1], self._size(match[2])

    def _size(self, text: str) -> Size:
        if self.table is None:
            raise ParseError('no variables declared yet: the line "variables primaries; coefficients" comes first')
        return self.table.size(text)

    def _define(self, name: str, dim: Dim) -> Dim:
        if name in self.dims:
            raise ParseError(f'"{name}" is defined twice')
        self.dims[name], self.unused[name] = dim, self.where
        return dim

    def _dim(self, name: str) -> Dim:
        if name not in self.dims:
            known = ", ".join(self.dims) or "none"
            raise ParseError(f'"{name}" is not defined above; defined are: {known}.{suggestion(name, self.dims)}')
        self.unused.pop(name, None)
        return self.dims[name]

    def _input_axis(self, name: str, size: Size) -> Dim:
        dim = self._dim(name)
        self._same_size(name, size, dim)
        return dim

    def _same_size(self, name: str, size: Size, dim: Dim) -> None:
        if size is not dim.size:
            raise ParseError(f'"{name}" is declared with size {size}, but its size is {dim.size}')

    def _weight_line(self, text: str) -> None:
        match = re.fullmatch(r"w(\d+)\[(.*)\]", text.strip())
        if not match:
            raise ParseError('a weight is declared as "weight w1[size, size, ...]"')
        sizes = [self._size(part.strip()) for part in match[2].split(",") if part.strip()]
        self.weight_lines[int(match[1])] = (self.where, sizes)

    def _primitive_line(self, line: str) -> None:
        match = re.fullmatch(rf"(?:(.*?)\s*=\s*)?({_NAME})\((.*)\)", line)
        if not match:
            words = "operator, variables, output, input, weight, id"
            raise ParseError(f'this is neither "name:size = Primitive(...)" nor a line that starts with one of: {words}')
        tops, name, inside = list(self._typed(match[1] or "")), match[2], match[3]
        if name not in TABLE:
            raise ParseError(f'unknown primitive "{name}"; there are: {", ".join(TABLE)}.{suggestion(name, TABLE)}')
        primitive = TABLE[name]
        arguments = [part.strip() for part in inside.split(",") if part.strip()]
        carries = primitive.parameter not in (ParameterKind.NONE, ParameterKind.DOMAIN)
        if len(arguments) != len(primitive.bottoms) + carries:
            wanted = ", ".join([*primitive.bottoms, *([primitive.parameter.value] if carries else [])]) or "nothing"
            raise ParseError(f"{name} takes {wanted}; given: {inside or 'nothing'}")
        bottoms = tuple(self._dim(argument) for argument in arguments[: len(primitive.bottoms)])
        if primitive is REDUCE:
            dims: tuple[Dim, ...] = self._reduce(tops)
        else:
            axis, parameter = self._parameter(primitive.parameter, arguments[-1] if carries else "")
            dims = Operation(primitive, parameter, bottoms).tops
            if primitive is SHARE:
                self._weight_axis(axis, dims[1])
                dims = dims[:1]
            elif primitive is EXPAND:
                self.expansions.append(bottoms[0])
        if len(tops) != len(dims):
            raise ParseError(f"{name} gives {len(dims)} dims ({', '.join(primitive.tops) or 'none'}); named: {len(tops)}")
        for (top, size), dim in zip(tops, dims, strict=True):
            self._same_size(top, size, dim)
            self._define(top, dim)

    def _reduce(self, tops: list[tuple[str, Size]]) -> tuple[Dim, ...]:
        dims = []
        for _, size in tops:
            dims.append(reduce(size, self.reduces[size]))
            self.reduces[size] += 1
        return tuple(dims)

    def _parameter(self, kind: ParameterKind, text: str) -> tuple[tuple[int, int], Parameter]:
        """The axis of a weight (for a Share), and the parameter."""
        match kind:
            case ParameterKind.BLOCK | ParameterKind.FACTOR:
                return (0, 0), self._size(text)
            case ParameterKind.AMOUNT:
                if not re.fullmatch(r"[+-]?\d+", text):
                    raise ParseError(f'"{text}" is not a number of positions, as in "+1" or "-2"')
                return (0, 0), int(text)
            case ParameterKind.WEIGHT:
                match = re.fullmatch(r"w(\d+)\[(\d+)\]", text)
                if not match:
                    raise ParseError(f'"{text}" is not an axis of a weight, as in "w1[0]"')
                return (int(match[1]), int(match[2])), int(match[1])
            case _:
                return (0, 0), None

    def _weight_axis(self, axis: tuple[int, int], dim: Dim) -> None:
        if axis in self.weight_axes:
            raise ParseError(f"axis {axis[1]} of weight w{axis[0]} is given twice")
        self.weight_axes[axis] = dim

    def _finish(self) -> PGraph:
        if self.table is None or self.output is None or self.input is None:
            missing = [
                line
                for line, absent in (
                    ("variables", self.table is None),
                    ("output", self.output is None),
                    ("input", self.input is None),
                )
                if absent
            ]
            raise ParseError(f"{self.source}: no line that starts with {' or '.join(missing)}")
        for name, where in self.unused.items():
            raise ParseError(f'{where}: "{name}" is used by nothing: make it an axis of the input, expand it, or use it above')
        try:
            graph = PGraph(
                tuple(self.output), tuple(self.input), self._weights(), tuple(self.expansions), self.name, self.table.defaults
            )
        except ParseError:
            raise
        except SynoError as error:
            raise ParseError(f"{self.source}: {error}") from error
        if self.id is not None and self.id != graph.id:
            raise ParseError(
                f'{self.source}: the id line says {self.id}, the text has {graph.id}; if you edited it, remove the "id" line'
            )
        return graph

    def _weights(self) -> tuple[tuple[Dim, ...], ...]:
        count = max((number for number, _ in self.weight_axes), default=0)
        weights = []
        for number in range(1, count + 1):
            axes = sorted(axis for weight, axis in self.weight_axes if weight == number)
            if axes != list(range(len(axes))) or not axes:
                raise ParseError(f"{self.source}: weight w{number} has axes {axes}; they must count 0, 1, 2 ... without a gap")
            weights.append(tuple(self.weight_axes[number, axis] for axis in axes))
        for number, (where, sizes) in self.weight_lines.items():
            actual = [dim.size for dim in weights[number - 1]] if 0 < number <= count else []
            if sizes != actual or not actual:
                raise ParseError(f"{where}: the Shares of w{number} give [{', '.join(map(str, actual))}]")
        return tuple(weights)

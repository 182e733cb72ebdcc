"""Parser of an operator's text, and of files with such texts. `str(graph)` writes the text.

    operator conv1d
    variables C_in, C_out, N, W; k=3
    output i0:N, i1:C_out, i2:W
    r0:C_in = Reduce()
    r1:k = Reduce()
    d0:C_out = Share(i1, w1[0])
    ...

Operators are stored and exchanged as this text; it depends on no search, no option and no version. A file that a program wrote
ends with a checksum of the text before it, since the id covers the operator's meaning but not its name, and its line may be
missing. Files written by hand have no checksum.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

from syno.algebra import Size, VariableTable
from syno.algebra.limits import (
    LARGEST_NUMBER,
    MOST_CHARACTERS,
    MOST_LINE_CHARACTERS,
    MOST_NAME_CHARACTERS,
    MOST_PRIMITIVES,
    MOST_WEIGHTS,
    shortened,
)
from syno.base.errors import ParseError, SynoError, suggestion
from syno.base.files import check_name, checksum
from syno.ir.dim import Dim, Operation, output_axis, reduce
from syno.ir.graph import LONGEST_OPERATOR_NAME, PGraph
from syno.ir.primitives import EXPAND, REDUCE, SHARE, TABLE, Parameter, ParameterKind

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_DIM = rf"({_NAME})\s*:\s*(\S+)"


class Parser:
    """The parser of one operator's text, with its state.

    Args:
        source: the name of the text or its file, for messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.where = source  # the current line, for messages
        self.name = "operator"
        self.table: VariableTable | None = None
        self.output: list[Dim] | None = None
        self.input: list[Dim] | None = None
        self.dims: dict[str, Dim] = {}
        self.unused: dict[str, str] = {}  # names that nothing uses yet, and the lines that define them
        self.weight_axes: dict[tuple[int, int], Dim] = {}
        self.weight_lines: dict[int, tuple[str, list[Size]]] = {}
        self.expansions: list[Dim] = []
        self.reduces: Counter[Size] = Counter()
        self.primitives = 0
        self.id: str | None = None

    def parse(self, text: str) -> PGraph:
        """Return the operator that the text describes. Raises ParseError for the first error in the text."""
        if len(text) > MOST_CHARACTERS:
            raise ParseError(f"{self.source}: {len(text)} characters; an operator's text has at most {MOST_CHARACTERS}")
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            self.where = f'{self.source}, line {number} "{shortened(line)}"'
            if len(line) > MOST_LINE_CHARACTERS:
                raise ParseError(f"{self.where}: {len(line)} characters; a line has at most {MOST_LINE_CHARACTERS}")
            try:
                self._line(line)
            except ParseError as error:
                raise ParseError(f"{self.where}: {error}") from None
            except SynoError as error:
                raise ParseError(f"{self.where}: {error}") from error
        self.where = self.source
        return self._finish()

    def _line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "operator":
                self.name = check_name(rest.strip(), "an operator's name", LONGEST_OPERATOR_NAME)
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
                self.input = []
                for name, size in self._typed(rest):
                    self.input.append(self._dim(name))
                    self._same_size(name, size, self.input[-1])
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
                raise ParseError(f'"{shortened(part)}" is not "name:size", as in "i0:C_out"; names have A-Z, a-z, 0-9 and _')
            if len(match[1]) > MOST_NAME_CHARACTERS:
                raise ParseError(
                    f'"{match[1][:20]}..." has {len(match[1])} characters; a name has at most {MOST_NAME_CHARACTERS}'
                )
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
            known = shortened(", ".join(self.dims), 400) or "none"
            raise ParseError(f'"{shortened(name)}" is not defined above; defined are: {known}.{suggestion(name, self.dims)}')
        self.unused.pop(name, None)
        return self.dims[name]

    def _same_size(self, name: str, size: Size, dim: Dim) -> None:
        if size is not dim.size:
            raise ParseError(f'"{name}" is declared with size {size}, but its size is {dim.size}')

    def _weight_line(self, text: str) -> None:
        match = re.fullmatch(r"w(\d{1,9})\[(.*)\]", text.strip(), re.ASCII)
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
            raise ParseError(f'unknown primitive "{shortened(name)}"; there are: {", ".join(TABLE)}.{suggestion(name, TABLE)}')
        primitive = TABLE[name]
        self.primitives += 1
        if self.primitives > MOST_PRIMITIVES:
            raise ParseError(f"this is one primitive more than the {MOST_PRIMITIVES} that an operator has at most")
        arguments = [part.strip() for part in inside.split(",") if part.strip()]
        carries = primitive.parameter not in (ParameterKind.NONE, ParameterKind.DOMAIN)
        if len(arguments) != len(primitive.bottoms) + carries:
            wanted = ", ".join([*primitive.bottoms, *([primitive.parameter.value] if carries else [])]) or "nothing"
            raise ParseError(f"{name} takes {wanted}; given: {shortened(inside) or 'nothing'}")
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
        """Return (weight, axis) of a Share, or (0, 0) for other primitives, and the parameter in the text."""
        match kind:
            case ParameterKind.BLOCK | ParameterKind.FACTOR:
                return (0, 0), self._size(text)
            case ParameterKind.AMOUNT:
                if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
                    raise ParseError(f'"{shortened(text)}" is not a number of positions, as in "+1" or "-2"')
                if len(text) > 20 or abs(int(text)) > LARGEST_NUMBER:
                    raise ParseError(f"a Shift by {shortened(text, 20)}; it is by at most {LARGEST_NUMBER} positions")
                return (0, 0), int(text)
            case ParameterKind.WEIGHT:
                match = re.fullmatch(r"w(\d{1,9})\[(\d{1,9})\]", text, re.ASCII)
                if not match:
                    raise ParseError(f'"{shortened(text)}" is not an axis of a weight, as in "w1[0]"')
                if int(match[1]) > MOST_WEIGHTS:
                    raise ParseError(f"weight {match[1]}; an operator has at most {MOST_WEIGHTS} weights")
                return (int(match[1]), int(match[2])), int(match[1])
            case ParameterKind.NONE | ParameterKind.DOMAIN:  # the number of a Reduce is counted
                return (0, 0), None
            case other:
                assert_never(other)

    def _weight_axis(self, axis: tuple[int, int], dim: Dim) -> None:
        if axis in self.weight_axes:
            raise ParseError(f"axis {axis[1]} of weight w{axis[0]} is given twice")
        self.weight_axes[axis] = dim

    def _finish(self) -> PGraph:
        if self.table is None or self.output is None or self.input is None:
            given = {"variables": self.table, "output": self.output, "input": self.input}
            missing = " or ".join(word for word, part in given.items() if part is None)
            raise ParseError(f"{self.source}: no line that starts with {missing}")
        for name, where in self.unused.items():
            raise ParseError(f'{where}: "{name}" is used by nothing: make it an axis of the input, expand it, or use it above')
        parts = (tuple(self.output), tuple(self.input), self._weights(), tuple(self.expansions))
        try:
            graph = PGraph(*parts, self.name, self.table.defaults)
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


LONGEST_MESSAGE = 1_000  # characters: messages quote what was given
MARK = "# checksum "


def parse(text: str, source: str = "operator text") -> PGraph:
    """Return the operator that a text describes. `#` starts a comment; the `id` line is optional, but must be right.

    >>> import syno
    >>> matmul = syno.OPERATORS["matmul"]()
    >>> parse(str(matmul)) == matmul
    True

    Raises ParseError, which names `source` and the line, also for a text beyond a limit of `syno.algebra.limits`.
    """
    try:
        return Parser(source).parse(text)
    except ParseError as error:
        raise ParseError(shortened(str(error), LONGEST_MESSAGE)) from error.__cause__


def parse_stored(text: str, source: str = "operator text", name: str | None = None) -> PGraph:
    """Return the operator in a text that a program has stored; `name`, if given, replaces the name in the text.

    Raises ParseError as `parse` does.
    """
    first, newline, rest = text.partition("\n")
    if name is None or not first.startswith("operator "):
        return parse(text, source)
    return parse(f"operator {name}{newline}{rest}", source)


def with_checksum(text: str) -> str:
    """Return the text with its checksum as a last line, which is a comment for `parse`."""
    return f"{text}{MARK}{checksum(text.encode())}\n"


def read_operator_file(file: Path, *, written_by_program: bool = False) -> PGraph:
    """Return the operator in a text file.

    Args:
        file: the file.
        written_by_program: whether the file must end with its checksum.

    Raises ParseError if the file cannot be read, holds no operator, or does not match its checksum.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(4 * MOST_CHARACTERS + 1)  # a character has at most 4 bytes
        content = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ParseError(f"{file}: cannot be read as text: {error}") from None
    text, mark, given = content.rpartition(MARK)
    if mark and given != f"{checksum(text.encode())}\n":
        raise ParseError(
            f"{file}: the checksum in its last line is not that of the text before: the file is damaged, or was edited; "
            "if you edited it, remove the line"
        )
    if written_by_program and not mark:
        raise ParseError(f"{file}: its last line is not the checksum: the file is damaged")
    return parse(content, str(file))

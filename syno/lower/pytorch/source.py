"""The source text of an operator's module: constructor, initialization, checks, and the statements of `forward`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from textwrap import indent, wrap
from typing import Any

from syno.algebra import ONE, Size, Valuations
from syno.algebra.code_names import code_name, renaming_note, stem
from syno.base.quoting import docstring
from syno.ir.coordinates import expression
from syno.ir.graph import PGraph
from syno.lower.plan import Plan
from syno.lower.pytorch.layouts import Order
from syno.lower.pytorch.statements import statements
from syno.lower.pytorch.tensor_code import TensorCode, shape_comment
from syno.lower.stages import fan_in


def parameters(graph: PGraph, layouts: Mapping[str, Order]) -> list[str]:
    """Return the statements that make the parameters, each in the memory layout in which it is read."""
    lines = []
    for number, weight in enumerate(graph.weights, 1):
        sizes = [dim.size.integer_text() for dim in weight]
        order = layouts.get(f"self.w{number}")
        options = "device=device, dtype=dtype"
        if order is None:
            lines.append(f"self.w{number} = nn.Parameter(torch.empty({', '.join(sizes)}, {options}))")
        else:
            back = ", ".join(str(order.index(axis)) for axis in range(len(order)))
            shape = shape_comment(dim.size for dim in weight)
            lines += [
                f"# w{number} is stored in the order in which it is read; its shape is {shape}.",
                f"stored = torch.empty({', '.join(sizes[axis] for axis in order)}, {options})",
                f"self.w{number} = nn.Parameter(stored.permute({back}))",
            ]
    return lines


def reset_parameters(graph: PGraph, layouts: Mapping[str, Order]) -> list[str]:
    """Return the lines of the method that draws the weights, the same values for every layout; [] without weights."""
    fans = fan_in(graph)
    if not fans:
        return []
    table = ", ".join(f'"w{number}": {size.integer_text()}' for number, size in fans.items())
    drawn, copies = "weight", []
    if any(f"self.w{number}" in layouts for number in fans):
        drawn = "drawn"
        copies = ["        with torch.no_grad():", "            weight.copy_(drawn)"]
    return [
        'def reset_parameters(self, seed=None, init="fan_in"):',
        '    """Draw new weights. "fan_in" keeps the variance of the input; "paper" is a truncated normal of 0.1."""',
        '    if init not in ("fan_in", "paper"):',
        '        raise ValueError(f\'init must be "fan_in" or "paper"; given: {init!r}\')',
        "    generator = None if seed is None else torch.Generator(self.w1.device).manual_seed(seed)",
        *local_names(graph, table),
        f"    fan_in = {{{table}}}",
        "    for name, weight in self.named_parameters():",
        *(["        drawn = torch.empty(weight.shape, device=weight.device, dtype=weight.dtype)"] if copies else []),
        '        if init == "fan_in":',
        f"            nn.init.normal_({drawn}, std=fan_in[name] ** -0.5, generator=generator)",
        "        else:",
        f"            nn.init.trunc_normal_({drawn}, std=0.1, generator=generator)",
        *copies,
    ]


def local_names(graph: PGraph, *texts: str) -> list[str]:
    """Return the statement that assigns the sizes in the texts to local variables; [] if there are none."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    names = [code_name(name) for name in graph.variables if name not in graph.runtime_variables]
    used = [name for name in names if name in words]
    return [f"    {', '.join(used)} = {', '.join(f'self.{name}' for name in used)}"] if used else []


FUNCTIONS = {
    "stored_windows": '''
def stored_windows(x, axis, window):
    """y[..., j, i, ...] = x[..., i + j - window//2, ...], zero outside: every window, stored before its axis."""
    before, shape = window // 2, x.shape
    first = shape[0] if axis else 1  # of all axes, unfold lets the first alone be empty
    x = x.reshape(first, math.prod(shape[1:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    x = functional.unfold(functional.pad(x, [0, 0, before, window - 1 - before]), (window, 1))
    return x.reshape(*shape[:axis], window, *shape[axis:])
''',
    "windows": '''
def windows(x, axis, window):
    """y[..., i, ..., j] = x[..., i + j - window//2, ...], zero outside: every window, as a view of the padded tensor."""
    before = window // 2
    padded = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, window - 1 - before])
    return padded.unfold(axis, window, 1)
''',
    "shear": '''
def shear(x, axis, window, dilation=1):
    """y[..., i, ..., j, ...] = x[..., i + dilation*j - dilation*K//2, ..., j, ...], zero outside; K = x.shape[window]."""
    return torch.stack(sheared_slices(x, axis, window, dilation), window)
''',
    "shear_sum": '''
def shear_sum(x, axis, window, dilation=1):
    """y[..., i, ...] = sum over j of x[..., i + dilation*j - dilation*K//2, ..., j, ...], zero outside; K = x.shape[window]."""
    return sum(sheared_slices(x, axis, window, dilation))
''',
    "sheared_slices": '''
def sheared_slices(x, axis, window, dilation):
    """For each j along the axis `window`: that slice of x, moved along `axis` by dilation*j - dilation*K//2."""
    length, count = x.shape[axis], x.shape[window]
    before, reach = dilation * count // 2, dilation * (count - 1)
    after = reach - before if reach > before else 0
    padded = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, after])
    moved = axis - (window < axis)
    return [padded.select(window, j).narrow(moved, dilation * j, length) for j in range(count)]
''',
    "window_sum": '''
def window_sum(x, axis, window, dilation=1):
    """y[..., i, ...] = sum over j of x[..., i + dilation*j - dilation*window//2, ...], zero outside."""
    length, before, reach = x.shape[axis], dilation * window // 2, dilation * (window - 1)
    after = reach - before if reach > before else 0
    padded = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, after])
    return sum(padded.narrow(axis, dilation * j, length) for j in range(window))
''',
}
NEEDS = {"shear": ("sheared_slices",), "shear_sum": ("sheared_slices",)}


def definitions(used: set[str]) -> str:
    """Return the source of the used functions of `FUNCTIONS` and of those that they call, with two blank lines around each."""
    needed = used | {other for name in used for other in NEEDS.get(name, ())}
    return "\n" + "".join(f"{text}\n" for name, text in FUNCTIONS.items() if name in needed)


LINE_LENGTH = 118
COMMENT_COLUMN = 70  # comments of shorter statements are aligned
# Names that a constructor uses, so that no size can have them.
NOT_AS_ARGUMENT = {
    "ValueError", "device", "dtype", "functional", "init", "math", "nn", "seed", "self", "stored", "super", "torch",
}  # fmt: skip


def to_source(
    graph: PGraph, values: Mapping[str, int] | Valuations | None = None, *, mode: str = "fused", plan: Plan | None = None
) -> str:
    """Return the operator as the source of one self-contained `nn.Module`, which takes its sizes when it is constructed.

    >>> import syno
    >>> source = syno.to_source(syno.OPERATORS["conv1x1"]())
    >>> print(next(line.strip() for line in source.splitlines() if "w1)" in line))
    x = torch.einsum("abcd,eb->aecd", x, self.w1)  # [N, C_out, H, H]

    Args:
        graph: the operator.
        values: the sizes for which the plan and the form of the code are chosen; the module works with all others, too. None:
            nominal sizes.
        mode: "fused" (fast), or "literal" (each primitive as its torch view, each Share as einsum).
        plan: the order of contractions; None: the one with the fewest FLOPs.

    Raises:
        LoweringError: the operator cannot be planned, or has too many axes for einsum.
    """
    found = statements(graph, values, mode=mode, plan=plan)
    return _Module(graph, found.body, found.composing, mode).text()


class _Module:
    """Writer of the source text of one operator's `nn.Module`."""

    def __init__(self, graph: PGraph, body: TensorCode, composing: TensorCode | None, mode: str) -> None:
        self.graph, self.body, self.composing, self.mode = graph, body, composing, mode
        self.arguments = [name for name in graph.variables if name not in graph.runtime_variables]
        self.defaults = {name: value for name, value in graph.variables.defaults.items() if name in self.arguments}

    def text(self) -> str:
        methods = [
            self._constructor(), reset_parameters(self.graph, self.body.layouts), self._compose(), self._prepared_weights(),
            self._forward(), self._extra_repr(),
        ]  # fmt: skip
        functions = self.body.functions | (self.composing.functions if self.composing else set())
        body = "\n\n".join("\n".join(lines) for lines in [self._docstring(), *filter(None, methods)])
        helpers = definitions(functions)
        imports = ("import math\n\n" if "math." in helpers else "") + "import torch\nfrom torch import nn\n"
        if "functional." in helpers + body:
            imports += "from torch.nn import functional\n"
        title = f"{self.graph.name}: a linear operator, generated by Syno ({self.mode} form).\n\n"
        return (
            f"{docstring(f'{title}{self.graph}{renaming_note(self.graph.variables)}')}\n\n"
            f"{imports}{helpers}\nclass {class_name(self.graph)}(nn.Module):\n{indent(body, '    ')}\n"
        )

    def _docstring(self) -> list[str]:
        shapes = [shape_comment(dim.size for dim in dims) for dims in (self.graph.input, self.graph.output)]
        runtime = list(self.graph.runtime_axes)
        free = f"; {' and '.join(runtime)} {'is' if len(runtime) == 1 else 'are'} read from the input" if runtime else ""
        return [f'"""{line}' if not n else line for n, line in enumerate(_wrap_lines(expression(self.graph)))] + [
            "", f"Input {shapes[0]}, output {shapes[1]}{free}.", '"""',
        ]  # fmt: skip

    def _constructor(self) -> list[str]:
        ordered = sorted(self.arguments, key=lambda name: name in self.defaults)
        given = [
            f"{argument_name(name)}: int" + (f" = {self.defaults[name]}" if name in self.defaults else "") for name in ordered
        ]
        options = ', *, seed=None, init="fan_in", device=None, dtype=None' if self.graph.weights else ""
        signature = f"def __init__({', '.join(['self', *given])}{options}):"
        lines = [*_break_signature(signature), "    super().__init__()"]
        if self.arguments:
            names = [code_name(name) for name in self.arguments]
            changed = [(name, code_name(name)) for name in self.arguments if argument_name(name) != code_name(name)]
            if changed:  # in one statement: one variable can have the name that another one gets
                lines.append(f"    {', '.join(new for _, new in changed)} = {', '.join(old for old, _ in changed)}")
            lines.append(f"    {', '.join(f'self.{name}' for name in names)} = {', '.join(names)}")
        lines += self._divisibility(at_runtime=False)
        lines += [f"    {line}" for line in parameters(self.graph, self.body.layouts)]
        if self.composing is not None:
            lines.append('    self.register_buffer("composed", None, persistent=False)')
        return [*lines, "    self.reset_parameters(seed, init)"] if self.graph.weights else lines

    def _divisibility(self, *, at_runtime: bool) -> list[str]:
        """Return the generated statements that check that sizes are whole numbers.

        `at_runtime` selects the sizes that depend on the input's shape; otherwise the sizes that the constructor knows.
        """
        checks: dict[tuple[str, str], None] = {}
        for size in self.graph.sizes:
            if at_runtime == self.graph.runtime_variables.isdisjoint(v.name for v in size.variables):
                continue
            parts = (Size({v: sign * e for v, e in size.exponents if sign * e > 0}) for sign in (1, -1))
            (above, shown_above), (below, shown_below) = ((part.integer_text(), part.integer_text(name=str)) for part in parts)
            if below != "1":
                values = ", ".join(f"{v.name} = {{{code_name(v.name)}}}" for v, _ in size.exponents)
                message = f'f"{shown_above} must be a multiple of {shown_below}; given: {values}"'
                checks[f"    if {_factor(above)} % {_factor(below)}:", f"        raise ValueError({message})"] = None
        return [line for check in checks for line in check]

    def _compose(self) -> list[str]:
        if self.composing is None:
            return []
        return [
            "def composed_weight(self):",
            '    """Two weights contracted with each other."""',
            *local_names(self.graph, *(statement for statement, _ in [*self.composing.prepared, *self.composing.lines])),
            *_statements([*self.composing.prepared, *self.composing.lines]),
            "    return composed",
            "",
            "def freeze(self):",
            '    """Compute the composed weight once, for inference. Call it again after the weights have changed."""',
            "    self.composed = self.composed_weight().detach()",
            "    return self",
        ]

    def _prepared_names(self) -> list[str]:
        """Return the names of the tensors that are computed from weights alone."""
        made = [statement.partition(" = ")[0] for statement, _ in self.body.prepared]
        return sorted({*made, *(["composed"] if self.composing is not None else [])})

    def _prepared_weights(self) -> list[str]:
        names = self._prepared_names()
        if not names:
            return []
        composed = "    composed = self.composed_weight() if self.composed is None else self.composed"
        return [
            "def prepared_weights(self):",
            '    """Return what forward computes from weights alone."""',
            *local_names(self.graph, *(statement for statement, _ in self.body.prepared)),
            *([] if self.composing is None else [composed]),
            *_statements(self.body.prepared),
            f"    return {', '.join(names)}",
        ]

    def _forward(self) -> list[str]:
        graph, rank = self.graph, len(self.graph.input)
        shape = ", ".join(dim.size.integer_text() for dim in graph.input) + ("," if rank == 1 else "")
        checks = self._divisibility(at_runtime=True)
        axes = graph.runtime_axes
        read = [_variable_from_shape(axis, factor) for axis, factor in axes.values()]
        lines = [
            "def forward(self, x):",
            *local_names(self.graph, shape, *read, *checks, *(statement for statement, _ in self.body.lines)),
            "    shape = tuple(x.shape)",
        ]
        if axes:
            names, ones = ", ".join(map(code_name, axes)), ", ".join("1" for _ in axes)
            found, others = (f"({', '.join(read)})", f"({ones})") if len(axes) > 1 else (read[0], ones)
            lines.append(f"    {names} = {found} if len(shape) == {rank} else {others}")
        shown = ", ".join(map(self._size_in_message, (dim.size for dim in graph.input)))
        # PyTorch accepts empty batches; most other axes of length 0 are an error, with a different message in each kernel.
        positive = [name for name, (axis, _) in axes.items() if axis > 0 or name not in graph.unchanged_variables]
        is_empty = "".join(f" or {code_name(name)} < 1" for name in positive)
        least = f" with {' and '.join(f'{name} > 0' for name in positive)}" if positive else ""
        lines += [
            f"    if shape != ({shape}){is_empty}:",
            f'        raise ValueError(f"the input has shape {{list(shape)}}; it must be [{shown}]{least}")',
            *checks,
        ]
        if prepared := self._prepared_names():
            lines.append(f"    {', '.join(prepared)} = self.prepared_weights()")
        return [*lines, *_statements(self.body.lines), "    return x"]

    def _size_in_message(self, size: Size) -> str:
        """Return a size for an f-string: `{...}` for factors that the constructor knows, names for lengths of the input."""
        read = Size({v: e for v, e in size.exponents if v.name in self.graph.runtime_variables})
        given = size / read
        if read == ONE or given == ONE:
            return f"{{{size.integer_text()}}}" if read == ONE else str(size)
        if not given.is_polynomial:
            return str(size)
        return f"{{{given.integer_text()}}}*{read}"

    def _extra_repr(self) -> list[str]:
        shown = ", ".join(f"{name}={{self.{code_name(name)}}}" for name in self.arguments)
        return ["def extra_repr(self):", f'    return f"{shown}"'] if shown else []


def _break_signature(signature: str) -> list[str]:
    """Return the lines of a function's signature: one, or if it is too long, two, with the options on the second."""
    if len(signature) <= LINE_LENGTH:
        return [signature]
    head, _, rest = signature.partition("(")
    sizes, _, options = rest.removesuffix("):").partition(", *, ")
    return [f"{head}(", f"    {sizes},", f"    *, {options},", "):"]


def _statements(lines: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(statement) for statement, _ in lines if len(statement) < COMMENT_COLUMN), default=0)
    return [f"    {statement:<{width}}  # {comment}" for statement, comment in lines]


def _variable_from_shape(axis: int, factor: Size) -> str:
    """Return the expression of a variable's value, from an axis whose length is `factor` times the variable.

    A remainder of the division is reported by the checks of sizes."""
    return f"shape[{axis}]" if factor == ONE else f"shape[{axis}] // {_factor(factor.integer_text())}"


def _factor(text: str) -> str:
    return f"({text})" if " " in text else text


def _wrap_lines(text: str) -> list[str]:
    return wrap(text, LINE_LENGTH - 4, subsequent_indent="    ", break_long_words=False)


def class_name(graph: PGraph) -> str:
    """Return the name of an operator's class: `LowRank` for `low_rank`, `OperatorNone` if the name is a keyword."""
    words = [word for word in re.split(r"\W|_", graph.name) if word]
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Operator{name}"


def argument_name(variable: str) -> str:
    """Return the argument of the generated constructor for a variable: its name, unless that is in `NOT_AS_ARGUMENT`."""
    return code_name(variable) if stem(variable) in NOT_AS_ARGUMENT else variable


def constructor_sizes(graph: PGraph, values: Mapping[str, int]) -> dict[str, int]:
    """Return the arguments of a generated module's constructor.

    `values` has a value for every variable; variables that are free at run time, such as the batch size, are no arguments.
    """
    return {argument_name(name): value for name, value in values.items() if name not in graph.runtime_variables}


def load_class(source: str, graph: PGraph) -> type[Any]:
    """Execute generated source, and return the class that it defines."""
    # Without a __name__: torch.compile would import the module that it names to find the globals of an inner module.
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<operator {graph.name} {graph.id[:8]}>", "exec"), namespace)
    kind: type[Any] = namespace[class_name(graph)]
    kind.__module__ = "syno.generated"
    return kind

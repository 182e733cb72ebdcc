"""The parts of a module's text that concern its weights: their layout in memory, and their initial values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from syno.algebra.code_names import code_name
from syno.ir.graph import PGraph
from syno.lower.pytorch.layouts import Order
from syno.lower.pytorch.tensor_code import shape_comment
from syno.lower.stages import fan_in


def parameters(graph: PGraph, layouts: Mapping[str, Order]) -> list[str]:
    """Return the statements that make the parameters, each in the memory layout that its reader uses."""
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
    """Return the method that draws the weights; the numbers are the same in every layout. Empty if there are no weights."""
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
    """Return a statement that defines local names for the sizes that the texts mention."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    names = [code_name(name) for name in graph.variables if name not in graph.runtime_variables]
    used = [name for name in names if name in words]
    return [f"    {', '.join(used)} = {', '.join(f'self.{name}' for name in used)}"] if used else []

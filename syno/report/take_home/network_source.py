"""A network with operators as the source of one Python file, which imports torch and nothing of Syno.

>>> import torch, syno
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False))
>>> changed = syno.substitute(model, syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16), where=["2"])
>>> print(network_source(changed).network)
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_0 = nn.Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
        self.layer_1 = nn.ReLU()
        self.layer_2 = SeparableConv2d(k=3, C_in=8, C_out=8)
<BLANKLINE>
    def forward(self, input):
        input_1 = input
        layer_0 = self.layer_0(input_1)
        layer_1 = self.layer_1(layer_0)
        layer_2 = self.layer_2(layer_1)
        return layer_2
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from textwrap import indent

import torch
from torch import fx, nn

from syno.base.errors import LoweringError
from syno.lower.pytorch.source import constructor_sizes
from syno.model.module import OperatorModule

CLASS = "Network"
IMPORTS = "import math\nfrom pathlib import Path\n\nimport torch\nfrom torch import nn\nfrom torch.nn import functional\n"
KNOWN = {"torch", "math"}  # what the code of `forward` may use
LOAD = '''
def load(weights=Path(__file__).with_name("weights.safetensors"), device="cpu"):
    """Return the trained network in evaluation mode."""
    from safetensors.torch import load_model

    network = Network().to(device)
    load_model(network, weights, device=str(device))
    return network.eval()
'''


@dataclass(frozen=True)
class NetworkSource:
    """The source of a network.

    Attributes:
        operators: the classes of its operators, and the functions that they call.
        network: the class of the network.
        names: for each module and tensor that `forward` uses, by its name in the network, its name in the class.
    """

    operators: str
    network: str
    names: Mapping[str, str]

    def text(self, title: str) -> str:
        """Return the file's text; `title` is its docstring."""
        parts = (f'"""{title}"""\n\n{IMPORTS}', self.operators, self.network, LOAD.strip())
        return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    def state(self, network: nn.Module) -> dict[str, torch.Tensor]:
        """Return the network's parameters and buffers by their names in the class."""
        found = {}
        for name, tensor in network.state_dict(keep_vars=True).items():
            owner, _, own = name.rpartition(".")
            if name in self.names:
                found[self.names[name]] = tensor
            elif owner in self.names:
                found[f"{self.names[owner]}.{own}"] = tensor
        return found


def network_source(network: nn.Module) -> NetworkSource:
    """Return a network as source.

    Its `forward` is traced in evaluation mode, by `torch.fx`: modules of `torch.nn` and operators are called, and what happens
    between them is written out.

    Raises LoweringError if that is not possible: `forward` depends on values, or a module cannot be written.
    """
    graph = _traced(network)
    names = _names(graph)
    operators = _Operators()
    lines = ["def __init__(self):", "    super().__init__()"]
    for target, name in names.items():
        lines.append(f"    self.{name} = {_constructed(network, target, operators)}")
    lines += [f"    self.{again} = self.{first}" for again, first in _tied(network, names)]
    body = "\n\n".join(("\n".join(lines), _forward(_renamed(graph, names))))
    return NetworkSource(operators.text(), f"class {CLASS}(nn.Module):\n{indent(body, '    ')}", names)


class _Tracer(fx.Tracer):  # type: ignore[misc]
    """Modules of torch.nn are called, as are operators."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, OperatorModule) or super().is_leaf_module(m, module_qualified_name)


def _traced(network: nn.Module) -> fx.Graph:
    modes = [(module, module.training) for module in network.modules()]
    try:
        return _Tracer().trace(network.eval())
    except Exception as error:  # there are very many kinds
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise LoweringError(f"the network's forward depends on values, so it cannot be written as source: {said[0]}") from error
    finally:
        for module, training in modes:
            module.training = training


def _names(graph: fx.Graph) -> dict[str, str]:
    """Return a name for each module and tensor that the graph uses, in the order of their use."""
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op not in ("call_module", "get_attr") or node.target in names:
            continue
        wanted = re.sub(r"\W", "_", node.target)
        wanted = f"layer_{wanted}" if wanted[:1].isdigit() else wanted
        while wanted in names.values():
            wanted += "_"
        names[node.target] = wanted
    return names


def _renamed(graph: fx.Graph, names: Mapping[str, str]) -> fx.Graph:
    """Return the graph with these names of modules and tensors, without types."""
    renamed, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        args, kwargs = (fx.node.map_arg(given, copies.__getitem__) for given in (node.args, node.kwargs))
        target = names[node.target] if node.op in ("call_module", "get_attr") else node.target
        copies[node] = renamed.create_node(node.op, target, args, kwargs)
    return renamed


def _constructed(network: nn.Module, target: str, operators: _Operators) -> str:
    """Return the expression that makes a module, or a tensor of the same shape."""
    owner, _, own = target.rpartition(".")
    holder = network.get_submodule(owner)
    found = getattr(holder, own)
    if isinstance(found, nn.Parameter):
        return f"nn.Parameter(torch.empty({tuple(found.shape)}))"
    if isinstance(found, torch.Tensor):
        raise LoweringError(f"its tensor {target} is a buffer, which cannot be written as source")
    if isinstance(found, OperatorModule):
        given = ", ".join(f"{name}={value}" for name, value in constructor_sizes(found.graph, found.sizes).items())
        return f"{operators.named(found)}({given})"
    text = f"nn.{found!r}"
    try:
        again = eval(text, {"nn": nn})  # the text is what PyTorch prints for its own modules
        if unprinted := ", ".join(f"{name}={value!r}" for name, value in _unprinted(found, again)):
            text = f"{text.removesuffix(')')}{'' if text.endswith('()') else ', '}{unprinted})"
            again = eval(text, {"nn": nn})
        shapes = [{name: tensor.shape for name, tensor in each.state_dict().items()} for each in (found, again)]
    except Exception as error:  # a text that is no expression raises anything
        raise LoweringError(f"its module {target} cannot be written as source: {text}") from error
    if type(again) is not type(found) or shapes[0] != shapes[1]:
        raise LoweringError(f"its module {target} cannot be written as source: {text} makes another one")
    return text


def _unprinted(module: nn.Module, again: nn.Module) -> Iterator[tuple[str, object]]:
    """Yield the arguments that PyTorch does not print, such as the `ceil_mode` of a pooling, where they differ."""
    for name in signature(type(module)).parameters:
        value = getattr(module, name, None)
        if isinstance(value, bool | int | float | str) and value != getattr(again, name, value):
            yield name, value


def _tied(network: nn.Module, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names in the class of each parameter that is another one, and of that one."""
    first: dict[int, str] = {}
    source = NetworkSource("", "", names)
    for name, tensor in source.state(network).items():
        place = first.setdefault(id(tensor), name)
        if place != name:
            yield name, place


def _forward(graph: fx.Graph) -> str:
    """Return the method `forward`."""
    code = graph.python_code("self")
    unknown = {name for name in code.globals if name not in KNOWN and re.search(rf"\b{re.escape(name)}\b", code.src)}
    if unknown:
        raise LoweringError(f"its forward uses {', '.join(sorted(unknown))}, which cannot be written as source")
    lines = (re.sub(r";  (\w+ = )+None$", "", line) for line in code.src.splitlines())
    text = "\n".join(line for line in lines if line.strip() and not re.fullmatch(r"\s*(\w+ = )+None", line))
    return text


class _Operators:
    """The classes of operators, with different names where their sources differ."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.classes: dict[str, str] = {}  # texts by name
        self.known: dict[str, str] = {}  # names by source

    def named(self, module: OperatorModule) -> str:
        """Return the name of the class of a module."""
        if module.source not in self.known:
            self.known[module.source] = self._add(module.source)
        return self.known[module.source]

    def text(self) -> str:
        return "\n\n\n".join((*self.functions.values(), *self.classes.values()))

    def _add(self, source: str) -> str:
        name = ""
        for node in ast.parse(source).body:
            text = ast.get_source_segment(source, node) or ""
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, text)
            elif isinstance(node, ast.ClassDef):
                name, number = node.name, 2
                while name in self.classes:
                    name, number = f"{node.name}_{number}", number + 1
                self.classes[name] = text.replace(f"class {node.name}(", f"class {name}(", 1)
        return name

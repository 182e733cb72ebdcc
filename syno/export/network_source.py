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
    def forward(self, x):
        layer_0 = self.layer_0(x)
        layer_1 = self.layer_1(layer_0)
        layer_2 = self.layer_2(layer_1)
        return layer_2
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from keyword import iskeyword
from textwrap import indent

import torch
from torch import fx, nn

from syno.base.errors import LoweringError, SpecError
from syno.base.quoting import docstring
from syno.export.tracing import Whole, assign_buffer, is_same_tensor, merged, torch_class, traced
from syno.lower.pytorch.source import constructor_sizes
from syno.model.inputs import Inputs
from syno.model.module import OperatorModule
from syno.model.shared_memory import copy_of

CLASS = "Network"
IMPORTS = """import math
from hashlib import blake2b
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
"""
KNOWN = {"torch", "math"}  # what the code of `forward` may use
FROM = {"inf": "math", "nan": "math", "device": "torch"}  # names that torch.fx writes for numbers and devices
LOAD = '''
CHECKSUM = "{checksum}"  # of weights.safetensors: 128 bits of blake2b


def load(weights=None, device="cpu"):
    """Return the trained network in evaluation mode.

    `weights` is a file with other weights of this network; without it, weights.safetensors beside this file is loaded.
    Raises ValueError if that is not the file that was written with this one.
    """
    from safetensors.torch import load_model

    file = Path(__file__).with_name("weights.safetensors") if weights is None else Path(weights)
    if weights is None and blake2b(file.read_bytes(), digest_size=16).hexdigest() != CHECKSUM:
        raise ValueError(f"{{file}} is damaged, or not the file of this network: copy the folder again, or name other weights")
    network = Network().to(device)
    load_model(network, file, device=str(device))
    return network.eval()
'''


@dataclass(frozen=True)
class NetworkSource:
    """The source of a network.

    Attributes:
        operators: source of the classes of its operators, and of the functions that they call.
        network: source of the class of the network.
        names: names in the class of the modules and tensors that `forward` uses, by their names in the network.
        imports: import lines for names that `forward` uses beside torch and math.
        constants: tensors that `forward` makes of numbers, by their names in the class.
        samples: the only sample shape that `forward` takes, if lengths are written as numbers; None if it reads them.
        only_inference: why the training mode could not be written; "" if it was.
    """

    operators: str
    network: str
    names: Mapping[str, str]
    imports: Sequence[str] = ()
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    samples: tuple[int, ...] | None = None
    only_inference: str = ""

    def text(self, title: str, checksum: str = "") -> str:
        """Return the text of the Python file.

        Args:
            title: the file's docstring.
            checksum: checksum of the weights file.
        """
        imports = "".join((IMPORTS, *(f"{line}\n" for line in self.imports)))
        parts = (f"{docstring(title)}\n\n{imports}", self.operators, self.network, LOAD.strip().format(checksum=checksum))
        return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    def state(self, network: nn.Module) -> dict[str, torch.Tensor]:
        """Return the network's parameters and buffers by their names in the class."""
        return {**_state(network, self.names), **self.constants}


def network_source(
    network: nn.Module, example: Inputs | None = None, *, only_inference: str = "", any_size: bool = True
) -> NetworkSource:
    """Return a network as source, with its evaluation and its training mode.

    `torch.fx` traces its `forward` in both modes: modules of `torch.nn` and operators are called, and the computation between
    them is written out. If the modes differ by more than flags, the source has a method for each.

    Args:
        network: the network, which is not changed.
        example: a batch of inputs. It allows a `forward` that computes with lengths as numbers: the source then takes samples
            of this shape only, and raises an error for others.
        only_inference: the reason not to write the training mode; "" to write it, if possible.
        any_size: whether to try first to write source for samples of any shape; if false, `example` is required.

    Raises LoweringError if `forward` depends on values or has several inputs, or a module is unknown.
    """
    if example is not None and not isinstance(example, torch.Tensor):
        raise LoweringError("source is written of networks with one input only")
    whole = Whole(_copied(network))
    tried = [given for given in (None, example) if given is not None or any_size]
    graphs, samples, only_inference = _traces(whole, tried, only_inference)
    _unite_constants(whole, graphs)
    names = _names(graphs)
    constants = {name: whole.tensor(target).detach().clone() for target, name in names.items() if whole.is_constant(target)}
    return _Writer(whole, names, samples, only_inference).source(graphs, constants)


Graphs = tuple[fx.Graph, ...]  # of both modes; of the evaluation mode and of the training mode; or of the evaluation mode


def _copied(network: nn.Module) -> nn.Module:
    """Return a copy of the network to trace, since torch.fx stores tensors at the modules that it traces."""
    try:
        return copy_of(network)
    except SpecError as error:
        raise LoweringError(f"it cannot be written as source: {error}") from error


def _traces(
    whole: Whole, tried: Sequence[torch.Tensor | None], only_inference: str
) -> tuple[Graphs, tuple[int, ...] | None, str]:
    """Return the traced graphs, the only sample shape they take (None: any), and why training mode has no graph ("": it has).

    `tried` are the examples for the trace, in order; None traces for samples of any shape.
    """
    found: tuple[Graphs, tuple[int, ...] | None, str] | None = None
    failed: LoweringError | None = None
    for given in dict.fromkeys(tried):
        samples = None if given is None else tuple(given.shape[1:])
        try:
            evaluation = traced(whole, given, training=False)
        except LoweringError as error:
            failed = failed or error
            continue
        reason = only_inference
        if not reason:
            try:
                training = traced(whole, given, training=True)
            except LoweringError as error:
                reason = str(error)
            else:
                return _both(whole, evaluation, training), samples, ""
        found = found or ((evaluation,), samples, reason)
    if found is None:
        assert failed is not None
        raise failed
    return found


def _both(whole: Whole, evaluation: fx.Graph, training: fx.Graph) -> Graphs:
    """Return one graph if evaluation and training mode differ by flags only, else two."""
    one = merged(whole, evaluation, training)
    return (evaluation, training) if one is None else (one,)


def _unite_constants(whole: Whole, graphs: Graphs) -> None:
    """Replace equal constant tensors by a single one, since the trace of each mode has made its own."""
    constants: list[str] = []
    for graph in graphs:
        for node in graph.nodes:
            if node.op == "get_attr" and node.target != TRAINING and whole.is_constant(node.target):
                same = (name for name in constants if is_same_tensor(whole.tensor(name), whole.tensor(node.target)))
                node.target = next(same, node.target)
                constants.append(node.target)


def _names(graphs: Graphs) -> dict[str, str]:
    """Return a name for each module and tensor that the graphs use, in the order of their use.

    A tensor of a module that the graph calls keeps its name within this module.
    """
    nodes = [node for graph in graphs for node in graph.nodes]
    called = {node.target for node in nodes if node.op == "call_module"}
    names: dict[str, str] = {}
    for node in nodes:
        is_assigned = node.target is assign_buffer
        if not is_assigned and node.op not in ("call_module", "get_attr"):
            continue
        target = node.args[0] if is_assigned else node.target
        is_of_called = node.op != "call_module" and target.rpartition(".")[0] in called
        if target not in names and not is_of_called and target != TRAINING:
            names[target] = _name(target, set(names.values()))
    return names


TRAINING = Whole.TRAINING
TAKEN = nn.Module()  # names of its attributes are not names of layers


def _name(target: str, taken: set[str]) -> str:
    """Return a valid attribute name for a name in the network: `in` -> `in_`, `0` -> `layer_0`."""
    wanted = re.sub(r"\W", "_", Whole.own(target).strip("_") or "layer", flags=re.ASCII)
    if wanted[:1].isdigit():
        wanted = f"layer_{wanted}"
    while wanted in taken or iskeyword(wanted) or hasattr(TAKEN, wanted) or wanted in METHODS:
        wanted += "_"
    return wanted


ASSIGNMENT = r"assign_buffer\w* = \w*assign_buffer\('([\w.]+)', (\w+)\)"  # as torch.fx writes it
METHODS = {"forward", "forward_in_training", "forward_in_evaluation", "train"}


def _state(network: nn.Module, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a network by their names in the class."""
    whole, found = Whole(network), dict[str, torch.Tensor]()
    for target, name in names.items():
        if whole.is_constant(target):
            continue
        if whole.is_module(target):
            module = whole.get_submodule(target)
            found |= {f"{name}.{own}": tensor for own, tensor in module.state_dict(keep_vars=True).items()}
        else:
            found[name] = whole.tensor(target)
    return found


class _Writer:
    """Writer of the Python class of a network.

    Args:
        whole: the network.
        names: names in the class, by targets in the graphs.
        samples, only_inference: as in `NetworkSource`.
    """

    def __init__(self, whole: Whole, names: Mapping[str, str], samples: tuple[int, ...] | None, only_inference: str) -> None:
        self.whole, self.names, self.samples, self.only_inference = whole, names, samples, only_inference
        self.operators, self.imports = _Operators(), set[str]()

    def source(self, graphs: Graphs, constants: Mapping[str, torch.Tensor]) -> NetworkSource:
        """Return the network's source, whose `forward` computes these graphs."""
        methods = [self._constructor(), *self._mode(), *self._forward(graphs)]
        body = "\n\n".join(methods)
        imports = [f"from {FROM[name]} import {name}" for name in sorted(self.imports)]
        network = f"class {CLASS}(nn.Module):\n{indent(body, '    ')}"
        text = self.operators.text()
        return NetworkSource(text, network, self.names, imports, constants, self.samples, self.only_inference)

    def _constructor(self) -> str:
        lines = ["def __init__(self):", "    super().__init__()"]
        lines += [f"    {self._made(target, name)}" for target, name in self.names.items()]
        lines += [f"    self.{again} = self.{first}" for again, first in self._tied()]
        lines += [f"    self.{name}.requires_grad_(False)" for name in self._frozen()]
        if self.only_inference:
            lines.append("    self.eval()")
        return "\n".join(lines)

    def _made(self, target: str, name: str) -> str:
        """Return the statement of `__init__` that makes a module, or an empty tensor of the same shape."""
        if self.whole.is_module(target):
            return f"self.{name} = {_constructed(self.whole.get_submodule(target), Whole.own(target), self.operators)}"
        tensor = self.whole.tensor(target)
        kind = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
        made = f"torch.empty({tuple(tensor.shape)}{kind})"
        if isinstance(tensor, nn.Parameter):
            return f"self.{name} = nn.Parameter({made}{'' if tensor.is_floating_point() else ', requires_grad=False'})"
        return f'self.register_buffer("{name}", {made})'

    def _tied(self) -> Iterator[tuple[str, str]]:
        """Yield (alias, original): the attribute names of tied tensors."""
        first: dict[int, str] = {}
        for name, tensor in _state(self.whole.network, self.names).items():
            place = first.setdefault(id(tensor), name)
            if place != name:
                yield name, place

    def _frozen(self) -> Iterator[str]:
        """Yield the names of frozen parameters, and of modules that have frozen parameters only."""
        for target, name in self.names.items():
            if self.whole.is_module(target):
                parameters = dict(self.whole.get_submodule(target).named_parameters())
                frozen = [own for own, parameter in parameters.items() if not parameter.requires_grad]
                yield from [name] if parameters and len(frozen) == len(parameters) else [f"{name}.{own}" for own in frozen]
            else:
                tensor = self.whole.tensor(target)
                if isinstance(tensor, nn.Parameter) and tensor.is_floating_point() and not tensor.requires_grad:
                    yield name

    def _mode(self) -> list[str]:
        """Return the lines of the method `train`; [] if the method of `nn.Module` suffices."""
        if self.only_inference:
            said = f"this network is for inference: {self.only_inference}"
            return [
                "def train(self, mode=True):\n"
                '    """Raise an error for the training mode: this network is for inference."""\n'
                f"    if mode:\n        raise RuntimeError({said!r})\n"
                "    return super().train(False)"
            ]
        modes = self.whole.modes([target for target in self.names if self.whole.is_module(target)])
        lines = []
        for always, method in ((False, "eval"), (True, "train")):
            kept = [f"self.{self.names[target]}" for target, found in modes.items() if found == {always}]
            lines += [f"    {name}.{method}()" for name in kept]
        if not lines:
            return []
        said = '    """Set the mode of all layers but those that keep theirs, as in the network that was trained."""'
        return ["\n".join(("def train(self, mode=True):", said, "    super().train(mode)", *lines, "    return self"))]

    def _forward(self, graphs: Graphs) -> list[str]:
        """Return the lines of the method `forward`, and of the methods that it calls."""
        texts = [self._code(graph) for graph in graphs]
        check = self._check()
        if len(texts) == 1:
            head, _, body = texts[0].partition("\n")
            return ["\n".join((head, *check, body))]
        evaluation, training = (
            text.replace("def forward(", f"def {name}(", 1)
            for text, name in zip(texts, ("forward_in_evaluation", "forward_in_training"), strict=True)
        )
        lines = (
            "def forward(self, x):",
            *check,
            "    if self.training:",
            "        return self.forward_in_training(x)",
            "    return self.forward_in_evaluation(x)",
        )
        return ["\n".join(lines), evaluation, training]

    def _check(self) -> list[str]:
        if self.samples is None:
            return []
        shape = ", ".join(map(str, ("N", *self.samples)))
        return [
            f"    if x.shape[1:] != {self.samples}:",
            f'        raise ValueError(f"this network is for inputs of [{shape}] only, and got {{list(x.shape)}}")',
        ]

    def _code(self, graph: fx.Graph) -> str:
        """Return the Python statements that compute a graph, as torch.fx generates them."""
        code = _renamed(graph, self.names).python_code("self")
        written = re.sub(ASSIGNMENT, r"self.\1 = \2", code.src)
        for name, value in code.globals.items():
            if getattr(value, "__module__", "") == "math":  # torch.fx writes math_sqrt
                written = re.sub(rf"\b{re.escape(name)}\b", f"math.{value.__name__}", written)
        used = {name for name in code.globals if re.search(rf"\b{re.escape(name)}\b", written)}
        self.imports |= used & FROM.keys()
        if unknown := used - KNOWN - FROM.keys():
            raise LoweringError(f"its forward uses {', '.join(sorted(unknown))}, which cannot be written as source")
        lines = (re.sub(r";  (\w+ = )+None$", "", line) for line in written.splitlines())
        return "\n".join(line for line in lines if line.strip() and not re.fullmatch(r"\s*(\w+ = )+None", line))


def _renamed(graph: fx.Graph, names: Mapping[str, str]) -> fx.Graph:
    """Return a copy of the graph with modules and tensors renamed, and without type annotations."""
    renamed, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        args, kwargs = (fx.node.map_arg(given, copies.__getitem__) for given in (node.args, node.kwargs))
        target = _in_class(node.target, names) if node.op in ("call_module", "get_attr") else node.target
        if target is assign_buffer:
            args = (_in_class(args[0], names), *args[1:])
        copies[node] = renamed.create_node(node.op, target, args, kwargs)
    return renamed


def _in_class(target: str, names: Mapping[str, str]) -> str:
    """Return a target's name in the class: of a module, a tensor, or an attribute of a renamed module."""
    if target == TRAINING:
        return "training"
    if target in names:
        return names[target]
    owner, _, own = target.rpartition(".")
    return f"{names[owner]}.{own}"


def _constructed(module: nn.Module, name: str, operators: _Operators) -> str:
    """Return the Python expression that constructs a module like this one; `name` is its name in the network, for messages."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        raise LoweringError(f"its module {name} has hooks, which cannot be written as source")
    if isinstance(module, OperatorModule):
        given = ", ".join(f"{size}={value}" for size, value in constructor_sizes(module.graph, module.sizes).items())
        return f"{operators.named(module)}({given})"
    kind = torch_class(module)
    assert kind is not None  # else its forward was traced
    text = f"nn.{kind.__name__}({kind.extra_repr(module)})"
    try:
        again = eval(text, {"nn": nn})  # the text is what PyTorch prints for its own modules
        if unprinted := ", ".join(f"{argument}={value!r}" for argument, value in _unprinted(module, kind, again)):
            text = f"{text.removesuffix(')')}{'' if text.endswith('()') else ', '}{unprinted})"
            again = eval(text, {"nn": nn})
        shapes = [{own: tensor.shape for own, tensor in each.state_dict().items()} for each in (module, again)]
    except Exception as error:  # a text that is no expression raises anything
        raise LoweringError(f"its module {name} cannot be written as source: {text}") from error
    if shapes[0] != shapes[1]:
        raise LoweringError(f"its module {name} cannot be written as source: {text} makes another one")
    return text


def _unprinted(module: nn.Module, kind: type[nn.Module], again: nn.Module) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of arguments that PyTorch's repr omits, such as `ceil_mode`, if `again` differs in them."""
    for name in signature(kind).parameters:
        value = getattr(module, name, None)
        if isinstance(value, bool | int | float | str) and value != getattr(again, name, value):
            yield name, value


class _Operators:
    """The classes of operators, with different names where their sources differ."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.classes: dict[str, str] = {}  # texts by name
        self.known: dict[str, str] = {}  # names by source

    def named(self, module: OperatorModule) -> str:
        """Return the name of an operator module's class; modules with equal sources share a class."""
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

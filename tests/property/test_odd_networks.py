"""Random networks out of the odd pieces that people write: what the table of layers says is what happens.

Each network has a few pieces from `PIECES`: aliases, subclasses, hooks, parametrizations, tied and sliced tensors, functional
calls, recurrent and normalization layers, parts that run in one mode only. It takes one input or several, and returns outputs
of any kind. In each, convolutions become operators with the weights of the convolutions that they replace, so that nothing may
change but the names of weights. What is written to take the network home is the network, or says why not.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from function_module import FunctionModule
from layer_operators import operator, weights_of
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from syno.base.errors import LoweringError, SpecError
from syno.export.network_folder import CARD, TrainedNetwork, write_network
from syno.model.counting import model_cost
from syno.model.extraction import sorted_out
from syno.model.geometry import CONVOLUTIONS, TRANSPOSED
from syno.model.inputs import call, first_inputs, mapped, of_batch
from syno.model.layer_table import layer_rows
from syno.model.saved import load
from syno.model.substitution import substitute

CHANNELS, SIZE, BATCH = 8, 8, 3
EVERY_KIND = "spatial, pointwise, grouped, transposed, linear"
NETWORKS = 80  # with each piece four times or more; the quick test takes two

PIECES: list[Callable[[Random], nn.Module]] = []  # each makes a module from [N, CHANNELS, H, W] to the same shape


def piece(make: Callable[[Random], nn.Module]) -> Callable[[Random], nn.Module]:
    PIECES.append(make)
    return make


def conv(random: Random, **given: Any) -> nn.Conv2d:
    kernel = random.choice((1, 3, 5))
    options = {"kernel_size": kernel, "padding": kernel // 2, "bias": random.random() < 0.5} | given
    return nn.Conv2d(CHANNELS, CHANNELS, **options)


@piece
def plain(random: Random) -> nn.Module:
    return nn.Sequential(conv(random), nn.ReLU())


@piece
def residual(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: x + self.norm(self.conv(x)).relu(), conv=conv(random), norm=nn.BatchNorm2d(CHANNELS))


@piece
def rectangular(random: Random) -> nn.Module:
    kernel = random.choice(((1, 3), (5, 3), (3, 1)))
    return conv(random, kernel_size=kernel, padding=tuple(side // 2 for side in kernel))


@piece
def dilated(random: Random) -> nn.Module:
    return conv(random, kernel_size=3, padding=2, dilation=2)


@piece
def text_padding(random: Random) -> nn.Module:
    return conv(random, kernel_size=random.choice((2, 3, 4)), padding="same")


@piece
def grouped(random: Random) -> nn.Module:
    return conv(random, groups=random.choice((2, 4, CHANNELS)))


@piece
def down_and_up(random: Random) -> nn.Module:
    down = conv(random, kernel_size=3, padding=1, stride=2)
    return nn.Sequential(down, nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, stride=2))


@piece
def other_padding(random: Random) -> nn.Module:
    return conv(random, kernel_size=3, padding=1, padding_mode=random.choice(("circular", "reflect", "replicate")))


class PadsItself(nn.Conv2d):
    """Its padding is zeros, whatever it was given, so that the output has ceil(length / stride) positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = []
        for axis in (1, 0):
            length, stride = x.shape[2 + axis], self.stride[axis]
            missing = max((-(-length // stride) - 1) * stride + self.kernel_size[axis] - length, 0)
            zeros += [missing // 2, missing - missing // 2]
        return functional.conv2d(functional.pad(x, zeros), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


@piece
def pads_itself(random: Random) -> nn.Module:
    return PadsItself(CHANNELS, CHANNELS, random.choice((2, 3, 4)), bias=random.random() < 0.5)


class Standardized(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class Scaled(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 0.5


class Renamed(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


@piece
def subclass(random: Random) -> nn.Module:
    return random.choice((Standardized, Scaled, Renamed))(CHANNELS, CHANNELS, 3, padding=1)


def doubled(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def halved(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (inputs[0] / 2,)


@piece
def hooks(random: Random) -> nn.Module:
    layer = conv(random)
    if random.random() < 0.5:
        layer.register_forward_hook(doubled)
    else:
        layer.register_forward_pre_hook(halved)
    return layer


@piece
def parametrized(random: Random) -> nn.Module:
    return random.choice((weight_norm, spectral_norm, nn.utils.weight_norm))(conv(random))


@piece
def tied_weights(random: Random) -> nn.Module:
    first, second = conv(random, kernel_size=3, padding=1), conv(random, kernel_size=3, padding=1)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second)


@piece
def run_twice(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: self.conv(self.conv(x).relu()), conv=conv(random))


@piece
def function_of_its_weight(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: functional.conv2d(x, self.conv.weight, padding=1), conv=conv(random, kernel_size=3))


@piece
def forward_called(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: self.conv.forward(x), conv=conv(random))


@piece
def by_keyword(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: self.conv(input=x), conv=conv(random))


@piece
def attributes_read(random: Random) -> nn.Module:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x.to(self.conv.weight.dtype).to(self.conv.weight.device))
        assert self.conv.stride[0] == 1 and self.conv.kernel_size[1] == 3 and self.conv.padding_mode == "zeros"
        return y.view(len(x), self.conv.out_channels, *x.shape[2:])

    return FunctionModule(run, conv=conv(random, kernel_size=3, padding=1))


@piece
def weight_in_arithmetic(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: self.conv(x) / self.conv.weight.norm(), conv=conv(random))


@piece
def alias(random: Random) -> nn.Module:
    encoder = nn.Sequential(nn.ReLU(), conv(random), nn.ReLU())
    second = random.random() < 0.5

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if second else self.encoder(x) + x

    return FunctionModule(run, encoder=encoder, layer=encoder[1], layers=nn.ModuleList([encoder[1]]))


@piece
def in_plain_list(random: Random) -> nn.Module:
    registered = conv(random)
    return FunctionModule(lambda self, x: self.plain[0](x), registered=registered, plain=[registered])


class Positions(nn.Module):
    """[N, C, H, W] -> [N, H*W, C], a layer of sequences, and back."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.flatten(2).transpose(1, 2)
        y = self.layer(y, y, y) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(y)
        y = y[0] if isinstance(y, tuple) else y
        return y.transpose(1, 2).reshape(x.shape).contiguous()  # what makes it may choose another memory format


class Rows(nn.Module):
    """[N, C, H, W] -> [N*H, W, C], a recurrent layer, whose steps are few in a row, and back."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.layer(x.permute(0, 2, 3, 1).flatten(0, 1))
        return y.unflatten(0, (x.size(0), SIZE)).permute(0, 3, 1, 2).contiguous()


@piece
def sequences(random: Random) -> nn.Module:
    layer = random.choice(
        (
            nn.LSTM(CHANNELS, CHANNELS, batch_first=True),
            nn.GRU(CHANNELS, CHANNELS // 2, batch_first=True, bidirectional=True),
            nn.MultiheadAttention(CHANNELS, 2, batch_first=True),
            nn.TransformerEncoderLayer(CHANNELS, 2, 16, dropout=0.0, batch_first=True),
            nn.Linear(CHANNELS, CHANNELS),
            nn.RMSNorm(CHANNELS),
        )
    )
    return Rows(layer) if isinstance(layer, nn.RNNBase) else Positions(layer)


@piece
def normalization(random: Random) -> nn.Module:
    return random.choice((nn.InstanceNorm2d(CHANNELS, affine=True), nn.GroupNorm(2, CHANNELS), nn.BatchNorm2d(CHANNELS)))


@piece
def flat_view(random: Random) -> nn.Module:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x + self.up(self.down(self.conv(x).view(x.size(0), -1))).view(-1, CHANNELS, SIZE, SIZE)

    size = CHANNELS * SIZE * SIZE
    return FunctionModule(run, conv=conv(random), down=nn.Linear(size, 4), up=nn.Linear(4, size))


@piece
def in_training_only(random: Random) -> nn.Module:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        # Dropout draws a number for each place in memory, so equal numbers need an equal memory format.
        return functional.dropout((x + self.aux(x)).contiguous(), 0.2) if self.training else x

    return FunctionModule(run, aux=conv(random))


@piece
def in_evaluation_only(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: x if self.training else self.extra(x), extra=conv(random))


@piece
def several_outputs(random: Random) -> nn.Module:
    inner = FunctionModule(lambda self, x: {"both": (self.conv(x), x), "none": None}, conv=conv(random))
    return FunctionModule(lambda self, x: sum(self.inner(x)["both"]), inner=inner)


@piece
def unused_output(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: (self.dead(x), x)[1] + self.conv(x), dead=conv(random), conv=conv(random))


@piece
def slices(random: Random) -> nn.Module:
    module = FunctionModule(lambda self, x: self.conv(x) * self.one + self.all.mean(), conv=conv(random))
    module.register_buffer("all", torch.rand(2, CHANNELS, 1, 1))
    module.register_buffer("one", module.all[1])
    return module


@piece
def frozen(random: Random) -> nn.Module:
    return conv(random).requires_grad_(False)


@piece
def recomputed(random: Random) -> nn.Module:
    return FunctionModule(lambda self, x: checkpoint(self.conv, x, use_reentrant=False), conv=conv(random))


class Adapter(nn.Module):
    """A convolution with a correction of low rank beside it."""

    def __init__(self, base: nn.Conv2d) -> None:
        super().__init__()
        self.base = base
        self.a, self.b = nn.Conv2d(CHANNELS, 2, 1, bias=False), nn.Conv2d(2, CHANNELS, 1, bias=False)

    @property
    def weight(self) -> torch.Tensor:
        return self.base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.b(self.a(x))


@piece
def adapter(random: Random) -> nn.Module:
    return Adapter(conv(random))


class Causal(nn.Conv1d):
    """A convolution along a sequence that reads earlier positions only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(functional.pad(x, (self.dilation[0] * (self.kernel_size[0] - 1), 0)))


@piece
def causal(random: Random) -> nn.Module:
    layer = Causal(CHANNELS, CHANNELS, random.choice((2, 3)), dilation=random.choice((1, 2)))
    return FunctionModule(lambda self, x: self.conv(x.flatten(2)).view(x.shape), conv=layer)


class Product(nn.Module):
    """A linear layer whose weight lies the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(CHANNELS, CHANNELS) / 3), nn.Parameter(torch.zeros(CHANNELS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.reshape(-1, CHANNELS), self.weight).view(x.shape)


@piece
def product(random: Random) -> nn.Module:
    return Positions(Product())


class Network(nn.Module):
    """A stem, pieces, and a head with one of several kinds of outputs."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.pieces = nn.ModuleList(make(random) for make in random.choices(PIECES, k=random.randint(2, 5)))
        self.head = nn.Linear(CHANNELS, 5)
        self.output = random.choice(("tensor", "tensor", "tuple", "dict"))
        if random.random() < 0.2:  # one piece runs a second time, as recurrent networks do
            self.pieces.append(random.choice(list(self.pieces)))
        self.output = random.choice((self.output, "dataclass", "mapping"))
        self.inputs = random.choice(("tensor", "tuple", "dict", "nested"))
        if self.inputs != "tensor":
            self.embedding = nn.Embedding(4, CHANNELS)

    def forward(self, x: Any, tokens: torch.Tensor | None = None, keep: torch.Tensor | None = None) -> Any:
        if isinstance(x, dict):
            x, tokens = x["x"], x["rest"][0]
        x = self.stem(x)
        x = x if tokens is None else x + self.embedding(tokens).mean(1)[..., None, None]
        x = x if keep is None else torch.where(keep, x, 0)
        for one in self.pieces:
            x = one(x)
        y = self.head(x.mean((2, 3)))
        made = {"tensor": y, "tuple": (y, x), "dict": {"logits": y, "features": [x]}, "dataclass": Parts(y, {"x": x})}
        return Named(logits=y, features=(x,)) if self.output == "mapping" else made[self.output]


@dataclass
class Parts:
    logits: torch.Tensor
    rest: dict[str, torch.Tensor]


class Named(OrderedDict):  # type: ignore[type-arg]
    """A mapping whose values are attributes, too, as Hugging Face's outputs are."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def network(seed: int) -> tuple[Network, Any]:
    """Return a network and its inputs, the first tensor of which has real numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Network(Random(seed))
        x, tokens, keep = (
            torch.randn(BATCH, 3, SIZE, SIZE),
            torch.randint(4, (BATCH, 2)),
            torch.rand(BATCH, 1, SIZE, SIZE) < 0.9,
        )
    several = {"tuple": (x, tokens), "dict": {"x": x, "keep": keep}, "nested": ({"x": x, "rest": [tokens]}, None, keep)}
    return made, several.get(made.inputs, x)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Parts):
        yield from tensors(vars(value))
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)


def results(model: nn.Module, inputs: Any, *, training: bool) -> list[torch.Tensor]:
    """Return the outputs and the gradient of the first input, with equal random numbers; the model is left as it was."""
    model = copy.deepcopy(model).train(training)
    inputs = mapped(lambda one: one.clone().requires_grad_(one.is_floating_point()), inputs)
    x = first_inputs(inputs)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        outputs = list(tensors(call(model, inputs)))
    (gradient,) = torch.autograd.grad(sum(one.square().sum() for one in outputs), x)
    return [*(one.detach() for one in outputs), gradient]


def in_format(inputs: Any, dtype: torch.dtype) -> Any:
    """Return inputs with real numbers in a format."""
    return mapped(lambda one: one.to(dtype) if one.is_floating_point() else one, inputs)


def runs_of(model: nn.Module, modules: dict[str, nn.Module], x: Any, *, training: bool) -> dict[str, int]:
    """Return how often each of these modules of the model runs."""
    counts = dict.fromkeys(modules, 0)

    def counter(name: str) -> Callable[..., None]:
        def count(*_: Any) -> None:
            counts[name] += 1

        return count

    handles = [module.register_forward_hook(counter(name)) for name, module in modules.items()]
    mode = model.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        call(model.train(training), x)
    model.train(mode)
    for handle in handles:
        handle.remove()
    return counts


def check_that_rows_say_all(model: Network, x: Any) -> set[str]:
    """Return the names of layers to replace, after checking that each other layer with weights has a reason."""
    found, refused = sorted_out(model, x, EVERY_KIND, keep_stem=True)
    rows = {row.name: row for row in layer_rows(model, x, EVERY_KIND)}
    taken = {layer.name for layer in found}
    assert taken == {name for name, row in rows.items() if not row.reason} and not taken & refused.keys()
    modules = dict(model.named_modules(remove_duplicate=False))
    with_row = {id(modules[name]) for name in rows if name in modules}
    ran = runs_of(model, modules, x, training=False)
    for name, module in modules.items():
        if isinstance(module, (*CONVOLUTIONS, *TRANSPOSED, nn.Linear, Product)) and ran[name]:
            assert id(module) in with_row, (name, rows)
    return taken


def check_that_operators_compute_the_same(model: Network, x: Any, names: set[str]) -> None:
    model, x = model.double(), in_format(x, torch.double)
    changed: nn.Module = model
    layers = dict(model.named_modules())
    # Spectral normalization makes another weight at each step, and even when it is read, which no operator repeats.
    plain = {name for name in names if not is_parametrized(layers[name])}
    taken = sorted(name for name in plain if isinstance(layers[name], (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)))
    for name in taken:
        layer: Any = layers[name]
        own = operator(len(layer.kernel_size), is_transposed=isinstance(layer, nn.ConvTranspose2d))
        wide = {f"k_{axis}": 2 * layer.dilation[0] * side + 1 for axis, side in enumerate(layer.kernel_size)}
        changed = substitute(changed, own.renamed("own", **wide), x, where=[name])
        module = next(one for one in changed.get_submodule(name).modules() if hasattr(one, "graph"))
        with torch.no_grad():
            module.w1.copy_(weights_of(layer, module))
    for training in (False, True):
        for wanted, result in zip(results(model, x, training=training), results(changed, x, training=training), strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-8, atol=1e-9)
        ours = {name: layers[name] for name in taken}
        theirs = {name: next(one for one in changed.get_submodule(name).modules() if hasattr(one, "graph")) for name in taken}
        assert runs_of(changed, theirs, x, training=training) == runs_of(model, ours, x, training=training)
    for name in taken:  # no other name of the layer is left
        others = [one for one, module in model.named_modules(remove_duplicate=False) if module is layers[name]]
        left = dict(changed.named_modules(remove_duplicate=False))
        assert all(left[one] is left[name] for one in others), (name, others)


def check_flops(model: Network, x: Any) -> None:
    model = copy.deepcopy(model).float().eval()
    x = in_format(x, torch.float)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        call(model, x)
    rows = layer_rows(model, x, EVERY_KIND)
    cost = model_cost(model, x)
    assert cost.flops == pytest.approx(BATCH * sum(row.flops for row in rows), abs=1)
    if not any(isinstance(one, nn.LSTM | nn.GRU | nn.MultiheadAttention) for one in model.modules()):
        assert cost.flops == counter.get_total_flops() // 2


def check_taken_home(model: Network, x: Any, folder: Path) -> None:
    """Write the network as `syno get` does and load it: it is the network in both modes, or says why not."""
    model, x = (
        copy.deepcopy(model).float().eval(),
        of_batch(in_format(x, torch.float), 2),
    )  # some programs take this batch only, and say so
    found = TrainedNetwork("odd", None, copy.deepcopy(model), x, None, {}, {}, None, 0.0)
    try:
        write_network(found, folder, ["module"])
    except LoweringError as error:  # no format holds it
        assert str(error)
        assert not folder.exists()
        return
    again = load(folder)
    modes = [False]
    if "for inference" in (folder / CARD).read_text().splitlines()[0]:
        with pytest.raises((SpecError, RuntimeError), match="for inference"):
            again.train()
    else:
        modes.append(True)
    for training in modes:
        for wanted, result in zip(results(model, x, training=training), results(again, x, training=training), strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)


def check(seed: int, folder: Path) -> None:
    model, x = network(seed)
    before = copy.deepcopy(model.state_dict())
    names = check_that_rows_say_all(model, x)
    check_flops(model, x)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name  # looking at a network leaves it as it was
    check_taken_home(model, x, folder / str(seed))
    check_that_operators_compute_the_same(model, x, names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 32, pytest.param(64, marks=pytest.mark.slow)])
def test_a_network_of_odd_pieces(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, NETWORKS, 20))
def test_more_networks_of_odd_pieces(first: int, tmp_path: Path) -> None:
    for seed in range(first + 2, first + 20, 4):
        check(seed, tmp_path)

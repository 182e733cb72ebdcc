"""Networks with native kernels: what follows a layer is computed with it, and what is wrong, missing or slower shows."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from native_kernels import kernel_store, make_quickly
from torch import nn
from torch.nn import functional

import syno
from syno.base.errors import LoweringError, MachineError, MissingPackageError, SpecError, WrongOutputError
from syno.lower.native.layouts import Format
from syno.lower.native.program import Epilogue
from syno.lower.native.target import own_target
from syno.measure.compilers import CPP, compiler_named
from syno.measure.measuring_process import _cpp_compiler
from syno.measure.native import choice, kernels, layers
from syno.measure.native.build import compiler
from syno.measure.native.choice import Formats, Times, fastest_formats
from syno.measure.native.kernels import Request, check, kernel_for
from syno.measure.native.layers import convolution
from syno.measure.native.network import NativeNetwork, native_network
from syno.measure.native.network_graph import of_shape
from syno.measure.output_check import OutputCheck
from syno.measure.reference import in_double, vary_constants
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune
from syno.model.module import OperatorModule

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler")
FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
FORMATS: tuple[Format, ...] = ("contiguous", "lanes")
HOPELESS = choice.hopeless
USUAL_SIZES = (("C_in", 4), ("C_out", 4), ("H", 3), ("N", 2))
CONV2D = OperatorSubject.of(syno.OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})


@pytest.mark.parametrize(
    ("cxx", "said"),
    [
        ("ccache g++", None),
        ("/usr/bin/ccache g++", None),
        ("g++", None),
        ("g++ -m64", "has arguments"),
        ("no-such-compiler", "is no program of this machine"),
        ("ccache no-such-compiler", "is no program of this machine"),
    ],
)
def test_the_compiler_of_the_environment_is_taken_or_refused(
    cxx: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch takes it, which would fail later."""
    monkeypatch.setenv("CXX", cxx)
    if said is None:
        assert compiler() == shutil.which("g++") and _cpp_compiler() == {"CXX": shutil.which("g++")}
    else:
        with pytest.raises(MissingPackageError, match=f'CXX is "{re.escape(cxx)}", which {said}'):
            compiler()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernel_store(tmp_path_factory)


@pytest.fixture(autouse=True)
def always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    make_quickly(monkeypatch)


@pytest.mark.slow
def test_kernels_of_one_store_are_told_apart(store: Path) -> None:
    """Requests that differ in one thing, whatever it is, have kernels of their own: none computes another's."""
    usual = Request(
        str(convolution(False)), (("C", 3), ("G", 1), ("H", 8), ("N", 2), ("O", 4), ("W", 8), ("k_0", 3), ("k_1", 3))
    )
    changes = {
        "operator": usual.operator.replace("operator convolution", "operator other"),
        "values": (*usual.values[:-3], ("W", 16), *usual.values[-2:]),
        "formats": ("lanes", "lanes"),
        "epilogue": Epilogue(activation="relu"),
        "threads": 2,
        "steps": (1, 1, 2, 2),
        "takes_maximum": True,
    }
    assert {*changes} == {field.name for field in fields(Request)}
    requests = [usual, *(replace(usual, **{name: value}) for name, value in changes.items())]
    made = [kernel_for(request, store) for request in requests]
    assert len({kernel.program.name for kernel in made}) == len(requests)
    for kernel in made:
        check(kernel)


def operator(seed: int, side: int = 3) -> OperatorModule:
    return syno.build(syno.OPERATORS["conv1x1"](), {"C_in": 4, "C_out": 4, "H": side}, seed=seed)


def of_each_channel() -> OperatorModule:
    """Return an operator that has the same weight for each channel, so that channels could count as samples."""
    build = syno.Builder("N, C, H; k=3", name="rows")
    n, c, y, x = build.output("N, C, H, H")
    (j,) = build.contract(inner=build.reduce("k"))
    return syno.build(build.finish([n, c, y, build.unfold(x, j)]), {"C": 4, "H": 3}, seed=0)


class Ends(nn.Module):
    """Layers with everything that a kernel can compute after them, and a result that something else uses, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([of_each_channel(), *(operator(seed) for seed in range(3))])
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.layers[0](x)).relu_()
        x = (2 * self.layers[1](x) + self.bias.view(-1, 1, 1)).relu()
        x = torch.relu(x + self.norms[1](self.layers[2](x)))
        y = self.layers[3](x)
        return self.norms[2](y) + y


def prepared(module: nn.Module, shape: tuple[int, ...], store: Path) -> NativeNetwork:
    """Return the network with kernels, after its outputs were compared with those of the module in double precision.

    What is no number, or has no bound, reaches the same outputs.
    """
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    vary_constants(module.eval(), x, 0)
    found = native_network(module, (x,), store)
    with torch.no_grad():
        exact = in_double(module)
        check = OutputCheck(exact, [(x,)])
        check.require(check.of(found.module))
        x.view(-1)[[0, -1]] = torch.tensor([-math.nan, math.inf])
        expected, made = exact(x), found.module(x)
        assert torch.equal(made.isfinite(), expected.isfinite()) and torch.equal(made.isnan(), expected.isnan())
    return found


def operations(found: NativeNetwork) -> list[str]:
    graph: Any = found.module.graph
    calls = [node.target for node in graph.nodes if node.op in ("call_function", "call_module")]
    return [str(target).removeprefix("aten.") for target in calls if target is not of_shape]


@pytest.mark.slow
def test_what_follows_a_layer_is_computed_with_it(store: Path) -> None:
    found = prepared(Ends(), (2, 4, 3, 3), store)
    assert found.reason == "" and [layer.name for layer in found.layers] == [f"layers.{number}" for number in range(4)]
    assert operations(found) == ["syno.native.default"] * 4 + ["batch_norm.default", "add.Tensor"]


@pytest.mark.slow
def test_another_shape_is_refused_without_code_that_each_call_runs(store: Path) -> None:
    found = prepared(Ends(), (2, 4, 3, 3), store)
    for call in (found.module, found.compiled((torch.randn(2, 4, 3, 3),))):
        with pytest.raises(SpecError, match=r"made for an input of shape \[2, 4, 3, 3\]; it got \[1, 4, 6, 3\]"):
            call(torch.randn(1, 4, 6, 3))
    assert not [name for name, value in vars(found.module).items() if "hooks" in name and value]


@pytest.mark.slow
def test_ordinary_layers_are_kernels_where_these_are_faster(store: Path) -> None:
    layers = nn.Sequential(
        nn.Conv2d(3, 4, (3, 1), padding=(1, 0), bias=False),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 8, 3, padding=1, groups=4),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 4, 1),
        nn.SiLU(),
        nn.Conv2d(4, 4, 3, stride=2, padding=1),
        nn.GELU(approximate="tanh"),
        nn.Conv2d(4, 6, 1, stride=(1, 2)),
        nn.Conv2d(6, 6, 3, padding=2, dilation=2),
        nn.Flatten(),
        nn.Linear(18, 3),
    )
    found = prepared(layers, (2, 3, 5, 4), store)
    assert [layer.name for layer in found.layers] == ["0", "2", "4", "6", "8", "11"]
    assert operations(found) == ["syno.native.default"] * 5 + ["conv2d.default", "flatten.using_ints", "syno.native.default"]


@pytest.mark.slow
def test_so_are_layers_in_one_dimension(store: Path) -> None:
    layers = nn.Sequential(
        nn.Conv1d(1, 4, 9, stride=4, padding=4, bias=False),
        nn.BatchNorm1d(4),
        nn.ReLU(),
        nn.Conv1d(4, 6, 5, padding=2, groups=2),
        nn.ReLU(),
        nn.Conv1d(6, 4, 1, stride=2),
        nn.Conv1d(4, 4, 4, padding=2),
    )
    found = prepared(layers, (3, 1, 37), store)
    assert [layer.name for layer in found.layers] == ["0", "3", "5"]
    assert operations(found) == ["syno.native.default"] * 3 + ["conv1d.default"]


class Counts(nn.Module):
    """A network that multiplies with the number of its calls, and adds what it saw last."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = operator(0)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(1, 4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = (self.layer(x) + self.last) * self.calls
        self.last = y.mean((0, 2, 3), keepdim=True)
        return y.relu()


def test_a_buffer_that_forward_changes_is_no_constant(store: Path) -> None:
    """Else the second call, and those after it, would compute with what the buffer held when the kernel was made."""
    network, x = Counts().eval(), torch.randn(2, 4, 3, 3)
    found = native_network(network, (x,), store)
    assert found.kernels == 1
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(found.module(x), network(x))


class OneSample(nn.Module):
    """A convolution of one sample, without an axis of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[0])


def test_a_convolution_of_one_sample_stays(store: Path) -> None:
    assert prepared(OneSample(), (1, 3, 6, 6), store).layers == ()


class Residuals(nn.Module):
    """Convolutions with strides, an operator, sums of two branches, averages; something else uses one tensor, too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layers = nn.ModuleList([operator(0, 6), nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 6, 3, 2, padding=1)])
        self.shortcut = nn.Conv2d(4, 6, 1, 2)
        self.last = nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.layers[1](self.layers[0](x)) + x)
        x = functional.avg_pool2d(x, (2, 3), ceil_mode=True)  # as in place of a stride; the sides are multiples
        x = self.shortcut(x) + self.layers[2](x)
        y = self.last(x)
        return self.head(y.mean((2, 3))) + y.amax((2, 3))[:, :5]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 20])
def test_between_kernels_tensors_are_in_lanes(batch: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages of whole pictures are kernels only where such a tensor is; this one's input is used by something else, too."""
    monkeypatch.setattr(choice, "LEAST_IN_LANES", 0)
    monkeypatch.setattr(choice, "fastest_in_turns", lambda other, *native: (2.0, *(1 / (n + 1) for n in range(len(native)))))
    found = prepared(Residuals(), (batch, 3, 6, 6), store)
    is_large = 2 * batch > own_target().lanes
    others = [] if is_large else ["mean.dim"]
    assert [name for name in operations(found) if "native" not in name] == [*others, "amax.default", "slice.Tensor"]
    between: Format = "lanes" if is_large else "contiguous"
    formats = {layer.name: layer.formats for layer in found.layers}
    assert formats.pop("stem") == formats.pop("mean") == ("contiguous", between)
    assert formats.pop("last") == formats.pop("head") == (between, "contiguous")
    assert set(formats.values()) == {(between, between)}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [pytest.param((1, 4, 20, 36), marks=pytest.mark.slow), (9, 3, 12, 8)])
@pytest.mark.parametrize(
    "maximum",
    [
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d((5, 1), (3, 2), (2, 0)),
        nn.MaxPool2d(3, 1, 1),
        nn.MaxPool2d((2, 4)),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    ],
    ids=str,
)
def test_a_maximum_behind_a_relu_is_a_kernel(maximum: nn.MaxPool2d, shape: tuple[int, ...], store: Path) -> None:
    """Rows in scratch are every second or third element of the caller's; and no zero is larger than what is in a window."""
    found = prepared(nn.Sequential(nn.ReLU(), maximum), shape, store)
    x = torch.randn(shape) - 2  # in some windows, nothing is above zero
    special = torch.tensor([math.nan, -math.nan, math.inf, -0.0, 1e-45, 3e38])
    places = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(0))[: 2 * len(special)]
    x.view(-1)[places] = special.repeat(2)
    torch.testing.assert_close(found.module(x), maximum(x.relu()), rtol=0, atol=0, equal_nan=True)
    assert operations(found)[-1] == ("max_pool2d.default" if maximum.ceil_mode else "syno.native.default")


@pytest.mark.parametrize("maximum", [nn.MaxPool2d(3, 2), nn.MaxPool2d(3, 1, 1, dilation=2), nn.MaxPool2d(3, 2, 1)], ids=str)
def test_another_maximum_stays(maximum: nn.MaxPool2d, store: Path) -> None:
    """Windows that leave something out have no kernel; nor have those whose results may all be below zero."""
    may_be_negative = maximum.stride == 2 and maximum.padding == 1
    network = nn.Sequential(nn.Tanh() if may_be_negative else nn.ReLU(), maximum)
    assert prepared(network, (2, 3, 8, 8), store).layers == ()


def test_pooling_alone_among_convolutions_has_no_kernel(store: Path) -> None:
    dilated = nn.Conv2d(4, 4, 3, padding=2, dilation=2)  # which no kernel computes
    found = prepared(nn.Sequential(dilated, nn.ReLU(), nn.MaxPool2d(2)), (2, 4, 6, 6), store)
    assert [(layer.name, layer.is_native) for layer in found.layers] == [("max_pool2d", False)]


@pytest.mark.parametrize("convolutions", [1, 2])
def test_what_stays_beside_kernels_depends_on_what_most_layers_are(
    convolutions: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's convolutions are compared on contiguous data among kernels; among convolutions, pooling has no kernel."""
    monkeypatch.setattr(choice, "hopeless", lambda layer, *_: "as fast" if layer.code == "convolution" else "")
    of_pytorch = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(convolutions)]
    found = prepared(nn.Sequential(operator(0, 6), *of_pytorch, nn.ReLU(), nn.MaxPool2d(2)), (2, 4, 6, 6), store)
    natives = {layer.name: layer.is_native for layer in found.layers}
    assert natives.pop("0") and set(natives.values()) == {convolutions == 1}
    reasons = [layer.reason for layer in found.layers if layer.name == "max_pool2d"]
    assert ("channels-last" in reasons[0]) == (convolutions == 2)


def test_how_fast_pytorchs_code_is_is_measured_once_for_all_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that differ in something of which that depends are measured each."""
    timed = []
    monkeypatch.setattr(choice, "hopeless", HOPELESS)
    monkeypatch.setattr(choice, "fastest_in_turns", lambda other: timed.append(other()) or (choice.SHORTEST_MS / 2,))
    for _ in range(2):
        for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, 2, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)):
            native_network(layer.eval(), (torch.zeros(2, 4, 6, 6),), tmp_path)
    assert len(timed) == 3


class Drawn(nn.Module):
    """Random layers on one of the last three tensors each, some with a sum of two branches and an activation."""

    def __init__(self, random: np.random.Generator, side: int) -> None:
        super().__init__()
        self.layers, self.inputs = nn.ModuleList(), list[tuple[int, int | None]]()
        shapes = [(4, side)]
        for number in range(7):
            source = int(random.integers(max(0, number - 2), number + 1))
            channels, length = shapes[source]
            out = int(random.choice([4, 8]))
            layers: list[nn.Module] = [
                nn.Sequential(nn.Conv2d(channels, out, 3, padding=1, groups=2), nn.BatchNorm2d(out)),
                nn.Conv2d(channels, out, 3, stride=2, padding=1),
                nn.Conv2d(channels, out, 1, stride=2),
                syno.build(syno.OPERATORS["conv2d"](), {"C_in": channels, "C_out": out, "H": length}, seed=number),
                syno.build(syno.OPERATORS["depthwise_conv2d"](), {"C": channels, "H": length}, seed=number),
                *([nn.AvgPool2d(2)] if length % 2 == 0 else []),
            ]
            layer = layers[random.integers(len(layers))]
            self.layers.append(nn.Sequential(layer, nn.GELU()) if random.random() < 0.3 else layer)
            made = layer(torch.zeros(1, channels, length, length)).shape
            shapes.append((made[1], made[2]))
            same = [at for at, shape in enumerate(shapes[:-1]) if shape == shapes[-1]]
            self.inputs.append((source, int(random.choice(same)) if same else None))
        self.head = nn.Linear(shapes[-1][0], 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tensors = [x]
        for layer, (source, added) in zip(self.layers, self.inputs, strict=True):
            y = layer(tensors[source])
            tensors.append(y if added is None else functional.silu(y + tensors[added]))
        return self.head(tensors[-1].mean((2, 3)))


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "side"), [(7, 7), (64, 6)])
def test_random_networks_in_random_formats(batch: int, side: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(batch + side)
    monkeypatch.setattr(choice, "LEAST_IN_LANES", 0)
    monkeypatch.setattr(choice, "fastest_in_turns", lambda other, *native: (1.5, *random.random(len(native))))
    prepared(Drawn(random, side), (batch, 4, side, side), store)


def test_formats_take_the_least_time_in_all() -> None:
    """A slow kernel between two fast ones is worth its time; and all ways are compared."""
    lanes: list[Formats] = [(into, out) for into in FORMATS for out in FORMATS]
    for seed in range(30):
        random = np.random.default_rng(seed)
        nodes = ["x", *(f"tensor{number}" for number in range(5))]
        placed: list[Any] = [
            SimpleNamespace(
                input=nodes[random.integers(max(0, number - 1), number + 1)],
                last=nodes[number + 1],
                end=SimpleNamespace(residual=nodes[random.integers(0, number + 1)] if random.random() < 0.5 else None),
            )
            for number in range(5)
        ]
        times = [Times(dict(zip(lanes, random.random(4), strict=True)), random.random()) for _ in placed]

        def total(chosen: Sequence[Formats | None], placed: Any = placed, times: Any = times) -> float:
            kept = {"x": "contiguous"}
            for layer, one in zip(placed, chosen, strict=True):
                into, kept[layer.last] = one or ("contiguous", "contiguous")
                residual = kept[layer.last] if layer.end.residual is None else kept[layer.end.residual]
                if into != kept[layer.input] or residual != kept[layer.last]:
                    return math.inf
            return float(sum(one.other if way is None else one.native[way] for one, way in zip(times, chosen, strict=True)))

        least = min(map(total, product([None, *lanes], repeat=5)))
        assert total(fastest_formats(placed, times)) == pytest.approx(least)


@pytest.mark.parametrize("why", ["slower", "no kernel"])
def test_an_operator_without_a_faster_kernel_stays_as_it_is(why: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Any:
        raise LoweringError("no axis stays as it is")

    if why == "slower":
        monkeypatch.setattr(choice, "fastest_in_turns", lambda other, native: (1.0, 2.0))
        monkeypatch.setattr(layers, "_compiled", lambda module, example: lambda: None)
    else:
        monkeypatch.setattr(choice, "kernel_for", none)
    module = nn.Sequential(syno.build(syno.OPERATORS["depthwise_conv2d"](), {"C": 4, "H": 3}, seed=0), nn.ReLU())
    found = prepared(module, (2, 4, 3, 3), store)
    assert operations(found) == ["synthesized", "relu.default"]
    assert [(layer.is_native, layer.reason) for layer in found.layers] == [
        (False, "" if why == "slower" else "no axis stays as it is")
    ]


def test_a_network_that_cannot_be_exported_has_kernels_for_its_operators(store: Path) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = operator(0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > -1e9 else x

    found = prepared(Branches(), (2, 4, 3, 3), store)
    assert found.reason.startswith("the network cannot be exported, so only operators are native")
    assert [layer.is_native for layer in found.layers] == [True]
    assert "NativeLayer" in repr(found.module)


def test_a_stored_kernel_is_neither_made_nor_timed_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prepared(operator(0), (2, 4, 3, 3), store)

    def again(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(kernels, "_chosen", again)
    monkeypatch.setattr(choice, "fastest_in_turns", again)
    assert prepared(operator(1), (2, 4, 3, 3), store).layers == before.layers


def test_a_wrong_kernel_is_caught_and_the_network_goes_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpp = Epilogue.cpp
    monkeypatch.setattr(Epilogue, "cpp", lambda *of: cpp(*of).replace("activation::relu", "activation::identity"))
    network = nn.Sequential(operator(0), nn.ReLU(), operator(1))
    found = prepared(network, (2, 4, 3, 3), tmp_path)
    assert operations(found) == ["synthesized", "relu.default", "syno.native.default"]
    assert found.summary.startswith("native kernels in 1 of 2 layers; without that of 0: the native kernel of <pGraph conv1x1")
    assert "differs from the interpreter by" in found.summary
    with pytest.raises(WrongOutputError):
        kernel_for(Request(str(operator(0).graph), USUAL_SIZES, epilogue=Epilogue(activation="relu")), tmp_path)


@pytest.mark.parametrize(("ending", "is_of_machine"), [
    ("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", True),
    ("echo 'g++: fatal error: Terminated signal terminated program cc1plus' >&2; exit 1", True),
    ("echo 'cc1plus: out of memory allocating 65536 bytes after a total of 9 bytes' >&2; exit 1", True),
    ("echo 'collect2: fatal error: ld terminated with signal 9 [Killed]' >&2; exit 1", True),
    ("echo '/usr/bin/as: Fatal error: cannot write /tmp/cc.o: No space left on device' >&2; exit 1", True),
    ("echo 'fatal error: error writing to /tmp/cc.s: Disk quota exceeded' >&2; exit 1", True),
    ("echo 'clang: error: unable to execute command: Killed' >&2; exit 254", True),
    ("kill -9 $$", True),
    ("kill -15 $$", True),
    ("exit 137", True),
    ("echo 'kernel.cpp:3:1: error: expected unqualified-id' >&2; exit 1", False),
    ("echo 'internal compiler error: Segmentation fault signal terminated program cc1plus' >&2; exit 1", False),
])  # fmt: skip
def test_a_compiler_that_the_system_ended_says_nothing_of_its_code(
    ending: str, is_of_machine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt makes the kernel; and what a compiler refuses is a layer without a kernel, as the record says."""
    script = tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo 1 && exit\n{ending}\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setattr(choice, "torch_operator", lambda _: lambda *_: None)
    network, x = nn.Sequential(operator(0)).eval(), torch.zeros(2, 4, 3, 3)
    if is_of_machine:
        with pytest.raises(
            MachineError, match=r"the machine did not let .*compiler compile \(.*\): see whether memory and the"
        ):
            native_network(network, (x,), tmp_path)
    else:
        found = native_network(network, (x,), tmp_path)
        assert re.match(r"native kernels in 0 of 1 layer; without that of 0: .*compiler does not compile", found.summary)
    assert not list(tmp_path.glob("*.json"))


def test_without_a_compiler_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"is no C\+\+ compiler: install g\+\+ or clang"):
        tune(CONV2D, "native")


def test_gpus_are_refused() -> None:
    with pytest.raises(SpecError, match='for the device "cpu" only; it was given "cuda"'):
        compiler_named("native").check_kind("cuda")


@pytest.mark.slow
def test_a_measurement_is_checked_and_records_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    record = tune(CONV2D, "native", settings=FAST, time_limit_s=550)
    assert (record.status, record.reason) == ("ok", "") and record.checked
    assert record.remark.startswith("native kernels in ") and record.limit_ms
    assert record.versions[CPP] and list((tmp_path / "syno" / "native").glob("kernel_*.so"))

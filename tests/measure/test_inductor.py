"""TorchInductor with constant weights, and in 8-bit integers: what it computes, what it leaves alone, what it refuses."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn

import syno
from syno.base.errors import LoweringError, MissingPackageError, NotCompiledError, SpecError
from syno.measure import compilers
from syno.measure.inductor import (
    BEING_WRITTEN_SECONDS,
    HEADERS,
    InBfloat16,
    frozen,
    frozen_with_code,
    remove_broken_headers,
    share_headers,
)
from syno.measure.job import SHARED_TEMPORARY
from syno.measure.network_subject import NetworkSubject
from syno.measure.quantization import quantized
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
OPERATOR_1 = str(syno.OPERATORS["operator_1"]().renamed("operator_1", g=4))
SEPARABLE = str(syno.OPERATORS["separable_conv2d"]())  # normalizations are folded into weights that were folded before
CONV2D = OperatorSubject.of(syno.OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed: pip install 'syno-operators[int8]'"
)


def network(operator: str | None = OPERATOR_1) -> NetworkSubject:
    return NetworkSubject(model="resnet6", classes=5, width=0.25, image_shape=(3, 16, 16), operator=operator)


class TwoLayers(nn.Module):
    """A network of two convolutions with the same FLOPs; something between them, and in the second one, may be left out."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor] = torch.relu, is_eager: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), between
        if is_eager:
            self.second.forward = torch.compiler.disable(self.second.forward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(self.first(x)))


class NotTraced(TwoLayers):
    """The same in code that PyTorch's compiler leaves as it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(1):
            torch._dynamo.graph_break()
            x = self.second(self.first(x))
        return x


def printed(x: torch.Tensor) -> torch.Tensor:
    print(end="")
    return x


@pytest.fixture
def graphs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Inductor return the graphs that it gets: generating code takes seconds."""
    monkeypatch.setattr(torch._TorchCompileInductorWrapper, "__call__", lambda self, graph, inputs, **options: graph.forward)
    torch._dynamo.reset()


X = (torch.randn(2, 4, 6, 6),)


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize(
    ("network", "graphs"),
    [(TwoLayers(), 1), (TwoLayers(printed), 2), (nn.Identity(), 0), (nn.Sequential(*[TwoLayers(printed)] * 2), 2)],
)
def test_what_was_compiled_is_told(network: nn.Module, graphs: int) -> None:
    """Graphs that are run again count again."""
    compiled, code = frozen_with_code(network.eval(), X)
    assert (code.graphs, code.flops_share) == (graphs, 1.0)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*X), network(*X))


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize(("network", "switch", "said"), [
    (TwoLayers(), "TORCHDYNAMO_DISABLE=1", "compiled 0 graphs, .* the environment variable TORCHDYNAMO_DISABLE=1 turns it off"),
    (TwoLayers(), "TORCH_COMPILE_DISABLE=1", "the environment variable TORCH_COMPILE_DISABLE=1 turns it off; unset it"),
    (TwoLayers(), "stance", "compiled 0 graphs, so the time would be that of eager: it is turned off"),
    (TwoLayers(is_eager=True), "", "compiled 1 graph with 50 % of the FLOPs, so .* Skip calling `torch.comp"),
    (NotTraced(), "", "compiled 0 graphs, .*it skips the code of this network"),
])  # fmt: skip
def test_what_is_left_to_eager_is_refused(network: nn.Module, switch: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, value = switch.partition("=")
    if value:
        monkeypatch.setenv(name, value)
    off = torch._dynamo.config.patch(disable=name == "TORCH_COMPILE_DISABLE")
    stance = torch.compiler.set_stance("force_eager" if switch == "stance" else "default")
    with off, stance, pytest.raises(NotCompiledError, match=said):
        frozen_with_code(network.eval(), X)


def test_an_error_of_the_compiler_is_not_suppressed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **options: object) -> None:
        raise RuntimeError("no code for this")

    monkeypatch.setattr(torch._TorchCompileInductorWrapper, "__call__", broken)
    with torch._dynamo.config.patch(suppress_errors=True), pytest.raises(Exception, match="no code for this"):
        frozen_with_code(TwoLayers().eval(), X)


def test_a_precompiled_header_whose_compiler_was_killed_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "precompiled_headers"
    folder.mkdir()
    for name, content, age in (("whole", b"gpch+014", 9), ("broken", bytes(8), 9), ("begun", bytes(8), 0)):
        (folder / f"{name}.h.gch").write_bytes(content)
        when = time.time() - age * BEING_WRITTEN_SECONDS
        os.utime(folder / f"{name}.h.gch", (when, when))
    remove_broken_headers(tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == ["begun.h.gch", "whole.h.gch"]


def test_processes_with_temporary_files_of_their_own_share_precompiled_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED_TEMPORARY, str(tmp_path))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        share_headers()
    share_headers()  # again changes nothing
    (user,) = (folder.name for folder in (tmp_path / "first").iterdir())
    (tmp_path / "first" / user / HEADERS / "one.h.gch").write_bytes(b"gpch")
    assert (tmp_path / "second" / user / HEADERS / "one.h.gch").read_bytes() == b"gpch"


def test_a_process_without_temporary_files_of_its_own_keeps_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for given in (None, str(tmp_path)):
        monkeypatch.delenv(SHARED_TEMPORARY, raising=False)
        if given is not None:
            monkeypatch.setenv(SHARED_TEMPORARY, given)
        share_headers()
        assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_constant_weights_change_neither_the_output_nor_the_module() -> None:
    material = network().make("cpu", 2)
    (x,) = material.make_inputs()
    with torch.no_grad():
        before, expected = deepcopy(material.module.state_dict()), material.module(x)
        compiled = frozen(material.module, (x,))
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
        assert all(torch.equal(value, before[name]) for name, value in material.module.state_dict().items())
        next(iter(material.module.parameters())).add_(1.0)  # the stem: what is compiled has its own
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
    assert not torch._inductor.config.freezing


@pytest.mark.slow
def test_in_bfloat16_weights_and_outputs_keep_their_types() -> None:
    material = network().make("cpu", 2)
    (x,) = material.make_inputs()
    with torch.no_grad():
        expected = material.module(x)
        found = frozen(InBfloat16(material.module, "cpu"), (x,))(x)
    assert found.dtype == torch.float32
    error = float((found - expected).abs().max() / expected.abs().max())
    assert 1e-4 < error < 0.05, "it is not computed in bfloat16, or something else is"
    assert all(weight.dtype == torch.float32 for weight in material.module.parameters())


@pytest.mark.slow
@needs_torchao
class TestIntegers:
    @pytest.mark.parametrize("operator", [None, OPERATOR_1, SEPARABLE], ids=["original", "operator_1", "separable"])
    def test_every_convolution_is_quantized(self, operator: str | None) -> None:
        material = network(operator).make("cpu", 2)
        before = deepcopy(material.module.state_dict())
        made = quantized(material.module, [material.make_inputs() for _ in range(3)])
        assert all(torch.equal(value, before[name]) for name, value in material.module.state_dict().items())
        layers = [node for node in made.graph.nodes if "conv2d" in str(node.target) or "linear" in str(node.target)]
        assert len(layers) == (6 if operator is None else 10)  # both operators are two convolutions
        for node in layers:
            assert all("dequantize" in str(argument.target) for argument in node.args[:2]), node

    def test_a_network_is_measured_within_the_tolerance_of_the_compiler(self) -> None:
        record = tune(network(), "inductor-int8", settings=FAST, time_limit_s=550)
        assert (record.status, record.reason) == ("ok", "")
        assert record.checked and record.settings.tolerance == 0.1 and "torchao" in record.versions
        assert record.largest_relative_error is not None
        assert 1e-4 < record.largest_relative_error < 0.1  # float32 is below

    def test_a_network_without_such_layers_is_refused(self) -> None:
        with pytest.raises(LoweringError, match="ReLU has no convolution or linear layer that can be quantized"):
            quantized(nn.ReLU(), [(torch.zeros(1, 3),)])


def test_a_run_keeps_its_tolerance_if_that_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "find_spec", lambda package: object())
    loose = FAST.model_copy(update={"tolerance": 0.3})
    for settings, compiler, tolerance in (
        (loose, "inductor-int8", 0.3),
        (FAST, "inductor-bfloat16", 0.1),
        (FAST, "eager", None),
    ):
        assert tune(CONV2D, compiler, settings=settings, time_limit_s=0.01).settings.tolerance == tolerance


def test_without_torchao_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "find_spec", lambda package: None)
    with pytest.raises(MissingPackageError, match=r'needs torchao, which is not installed: .*"syno-operators\[int8\]"'):
        tune(CONV2D, "inductor-int8")


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(SpecError, match="kernels for x86 only, and this is aarch64; take inductor"):
        tune(CONV2D, "inductor-int8")


def test_other_devices_are_refused() -> None:
    with pytest.raises(SpecError, match='for the device "cpu" only; it was given "cuda"'):
        compilers.compiler_named("inductor-int8").check_kind("cuda")

"""OpenVINO and ONNX Runtime as compilers: what they compute, record and send, and what is said without them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import syno
from syno.base.errors import LoweringError
from syno.measure import compilers
from syno.measure.compilers import compiler_named
from syno.measure.measuring import findings
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.protocol import Request
from syno.measure.runtimes import TELEMETRY, in_onnx_runtime, in_openvino, of_module, openvino
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune

if missing := [name for name in ("onnxruntime", "onnxscript", "openvino") if find_spec(name) is None]:
    pytest.skip(f"{missing[0]} is not installed: pip install 'syno-operators[openvino,onnxruntime]'", allow_module_level=True)

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
CONV2D = OperatorSubject.of(syno.OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
OPERATOR_1 = syno.OPERATORS["operator_1"]().renamed("operator_1", g=4)


class TwoInputs(nn.Module):
    """A network of a picture and of symbols, whose outputs lie in a dict and a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = nn.Embedding(7, 4)

    def forward(self, x: torch.Tensor, symbols: torch.Tensor) -> dict[str, Any]:
        return {"means": (x.mean(), None, x[:, :2]), "sum": x + self.symbols(symbols)}


PICTURE = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
NETWORKS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "normalized": (nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), (PICTURE,)),
    "operator": (syno.build(OPERATOR_1, {"N": 2, "C_in": 8, "C_out": 8, "H": 6}), (torch.randn(2, 8, 6, 6),)),
    "tokens": (nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 9)), (torch.randint(9, (2, 5)),)),
    "two inputs": (TwoInputs(), (torch.randn(2, 5, 4), torch.randint(7, (2, 5)))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_those_of_eager(name: str) -> None:
    network, inputs = NETWORKS[name]
    network.eval()
    model = of_module(network, inputs)
    with torch.no_grad():
        expected = network(*inputs)
        for call in (
            in_openvino(model, model.content, 1, INFERENCE_PRECISION_HINT="f32"),
            in_onnx_runtime(model, model.content, 2),
        ):
            call(*(torch.zeros_like(x) for x in inputs))  # nothing stays of the last call
            torch.testing.assert_close(call(*inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiler", ["openvino", "onnxruntime"])
def test_a_checked_operator_is_timed_and_versions_are_recorded(compiler: str, tmp_path: Path) -> None:
    found = findings(Request(subject=CONV2D, compiler=compiler, device="cpu", settings=FAST, folder=tmp_path))
    assert (found.status, found.fields["checked"]) == ("ok", True), found.reason
    assert {compiler, "onnx", "torch"} <= compiler_named(compiler).versions().keys()


@pytest.mark.slow
def test_what_cannot_be_written_as_onnx_is_said_in_one_line() -> None:
    class Waves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    with pytest.raises(LoweringError, match=r"^Waves cannot be written as ONNX: .*bessel_j0[^\n\x1b]*$"):
        of_module(Waves(), (torch.zeros(2),))


def test_without_the_package_the_record_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "find_spec", lambda package: None)
    record = tune(CONV2D, "openvino", settings=FAST)
    assert (record.status, record.latency_ms) == ("failed", None)
    assert record.reason == (
        'the compiler openvino needs openvino, which is not installed: pip install "syno-operators[openvino]"'
    )


class TestUsageData:
    def test_the_package_that_sends_it_is_not_loaded(self) -> None:
        openvino()
        assert sys.modules[TELEMETRY] is None
        assert openvino("openvino.tools.ovc.convert_impl").tm.__name__ == "openvino.tools.ovc.telemetry_stub"

    def test_one_that_was_loaded_before_sends_nothing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delitem(sys.modules, TELEMETRY, raising=False)
        telemetry = import_module(TELEMETRY)
        sent = list[Any]()
        monkeypatch.setattr(telemetry.main.TelemetrySender, "send", lambda self, *message: sent.append(message))
        telemetry.Telemetry("any", "1", "G-1", backend="ga4").send_event("any", "event", "label", force_send=True)
        assert len(sent) == 1
        openvino()
        telemetry.Telemetry().send_event("any", "event", "label", force_send=True)
        assert len(sent) == 1

    def test_nothing_else_imports_it(self) -> None:
        imports = re.compile(r"^\s*(import|from) (openvino|nncf)\b", re.MULTILINE)
        files = Path(syno.__file__).parent.rglob("*.py")
        assert not [file for file in files if imports.search(file.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["openvino", "onnxruntime"])
@pytest.mark.parametrize(
    ("subject", "batch"),
    [
        (lambda: NetworkSubject(model="resnet6", classes=5, width=0.25, image_shape=(3, 16, 16)), 1),
        (lambda: NetworkSubject(model="resnet6", classes=5, image_shape=(3, 16, 16), operator=str(OPERATOR_1)), 64),
        (lambda: LanguageModelSubject(model="gpt_tiny", vocabulary=64, length=16, width=0.5), 2),
    ],
)
def test_networks_are_measured_with_two_threads(subject: Callable[[], Any], batch: int, compiler: str) -> None:
    settings = FAST.model_copy(update={"batch": batch, "threads": 2})
    record = tune(subject(), compiler, settings=settings, time_limit_s=550)
    assert (record.status, record.checked, record.device.threads) == ("ok", True, 2), record.reason
    assert {compiler, "onnx"} <= record.versions.keys()

"""OpenVINO and ONNX Runtime as compilers: what they compute, record and send, and what is said without them."""

from __future__ import annotations

import os
import re
import subprocess
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
from syno.base.errors import LoweringError, UnknownNameError
from syno.measure import compilers
from syno.measure.compilers import compiler_named
from syno.measure.job import Int8Settings
from syno.measure.measuring import findings
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.onnx_quantization import in_integers, with_accuracy_control
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

    @pytest.mark.slow
    def test_a_quantization_opens_no_connection(self, tmp_path: Path) -> None:
        """NNCF leaves telemetry out where pytest is, so that it is tried in another process."""
        program = (
            "import socket, torch\n"
            "def refuse(*given): raise SystemExit('a connection was opened')\n"
            "socket.socket.connect = socket.getaddrinfo = refuse\n"
            "from syno.measure.onnx_quantization import in_integers\n"
            "from syno.measure.runtimes import of_module, openvino\n"
            "inputs = [(torch.randn(2, 4, 6, 6),)] * 8\n"
            "model = of_module(torch.nn.Conv2d(4, 4, 3), inputs[0])\n"
            "in_integers('openvino-int8', model, inputs, 1)(*inputs[0])\n"
            "print(type(openvino('nncf.telemetry.wrapper').telemetry).__name__)\n"
        )
        environment = {**os.environ, "HOME": str(tmp_path), "CI": ""}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout.split()[-1:]) == (0, ["MagicMock"]), done.stderr[-2000:]
        assert not list(tmp_path.iterdir()), "a file with the user's number was written"

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


class Halves(nn.Module):
    """A network that says in which half of a picture its brightest part is."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.stem(x)))
        return self.head(torch.cat([y[..., :4].amax((2, 3)), y[..., 4:].amax((2, 3))], 1))


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, list[tuple[torch.Tensor, ...]], torch.Tensor, torch.Tensor]:
    """A trained network, training inputs in batches, and pictures with their labels."""
    torch.manual_seed(0)
    network, labels = Halves(), torch.randint(2, (400,))
    pictures = torch.randn(400, 4, 6, 8)
    pictures[torch.arange(400), 1, 3, 1 + 4 * labels] += 6.0
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(pictures[:320]), labels[:320]).backward()
        optimizer.step()
    return network.eval(), [(batch,) for batch in pictures[:320].split(80)], pictures[320:], labels[320:]


@pytest.mark.parametrize("compiler", [pytest.param("openvino-int8", marks=pytest.mark.slow), "onnxruntime-int8"])
class TestIntegers:
    def test_a_trained_network_classifies_as_well_and_layers_stay_in_floats(self, compiler: str, trained: Any) -> None:
        pytest.importorskip("nncf" if compiler == "openvino-int8" else "onnxruntime")
        network, inputs, pictures, labels = trained
        model = of_module(network, inputs[0])
        assert list(model.layers) == ["stem", "head"]
        with torch.no_grad():
            exact = network(pictures)
            found, floats = (in_integers(compiler, model, inputs, 1, layers)(pictures) for layers in ((), ("stem", "head")))
        right, expected = (float((output.argmax(1) == labels).float().mean()) for output in (found, exact))
        assert right >= expected - 0.03 > 0.9
        error, without = (float((output - exact).abs().max() / exact.abs().max()) for output in (found, floats))
        assert without < 1e-5 and 1e-3 < error < 0.1
        with pytest.raises(UnknownNameError, match='the network has no layer "tail" in ONNX; there are: stem, head'):
            in_integers(compiler, model, inputs, 1, ("tail",))

    @pytest.mark.slow
    def test_a_network_is_measured_within_the_tolerance_of_the_compiler(self, compiler: str) -> None:
        settings = FAST.model_copy(update={"batch": 64, "threads": 2})
        subject = NetworkSubject(model="resnet6", classes=5, image_shape=(3, 16, 16), operator=str(OPERATOR_1))
        record = tune(subject, compiler, settings=settings, time_limit_s=550, int8=Int8Settings(float_layers=("stem",)))
        assert (record.status, record.settings.tolerance, record.remark) == ("ok", 0.1, "in floats: stem"), record.reason
        assert record.largest_relative_error is not None and 1e-4 < record.largest_relative_error < 0.1
        assert {compiler.removesuffix("-int8"), "onnx"} <= record.versions.keys()
        assert compiler == "onnxruntime-int8" or "nncf" in record.versions


def test_layers_with_which_the_score_gains_most_go_back_to_floats_first() -> None:
    harm = {"a": 0.01, "b": 0.2, "c": 0.1}

    def score(floats: tuple[str, ...]) -> float:
        return 1.0 - sum(lost for layer, lost in harm.items() if layer not in floats)

    for least, floats in ((0.6, ()), (0.85, ("b",)), (0.98, ("b", "c")), (0.999, ("b", "c", "a")), (2.0, ("b", "c", "a"))):
        assert with_accuracy_control(score, tuple(harm), least) == floats

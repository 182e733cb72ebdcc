"""Language models as something to be measured: what is made, what it is given, and the records that come of it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from pydantic import ValidationError
from sequence_operators import window
from typer.testing import CliRunner

import syno
from syno.base.errors import SpecError, UnknownNameError
from syno.cli import app
from syno.config import Experiment
from syno.measure.latency import relative_error
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.quantization import quantized
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune
from syno.measure.tuning_record import TuningRecord
from syno.model.module import OperatorModule
from syno.stages.data import DataRecord, prepare
from syno.stages.measurements import measure

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
PROJECTION = syno.OPERATORS["gpt2_projection"]()
LAYER = "transformer.h.1.attn.c_attn"
needs_torchao = pytest.mark.skipif(
    find_spec("torchao") is None, reason="torchao is missing: pip install 'syno-operators[int8]'"
)
FEATURES, LENGTH, VOCABULARY = 96, 8, 37  # the first is that of the model


def subject(operator: syno.PGraph | None = None, **rest: Any) -> LanguageModelSubject:
    given = {"model": "gpt_tiny", "vocabulary": VOCABULARY, "length": LENGTH, **rest}
    return LanguageModelSubject(**given, operator=None if operator is None else str(operator))


class TestMaterial:
    def test_inputs_are_tokens(self) -> None:
        material = subject().make("cpu", 3)
        inputs = [tokens for _ in range(50) for tokens in material.make_inputs()]
        assert {(tokens.dtype, tuple(tokens.shape)) for tokens in inputs} == {(torch.int64, (3, LENGTH))}
        assert torch.cat(inputs).unique().tolist() == list(range(VOCABULARY))
        assert torch.equal(subject().make("cpu", 3).make_inputs()[0], inputs[0])
        assert material.module(inputs[0]).shape == (3, LENGTH, VOCABULARY)

    @pytest.mark.parametrize("operator", [PROJECTION, window(2)], ids=lambda graph: graph.name)
    def test_the_reference_computes_the_same_in_another_form(self, operator: syno.PGraph) -> None:
        material = subject(operator).make("cpu", 2)
        assert material.reference is not None and material.reference_name == "network of literal modules"
        networks = {"fused": material.module, "literal": material.reference}
        for mode, network in networks.items():
            assert isinstance(network, torch.nn.Module)
            assert [part.mode for part in network.modules() if isinstance(part, OperatorModule)] == [mode, mode]
        (tokens,) = material.make_inputs()
        with torch.no_grad():
            assert relative_error(material.module(tokens), material.reference(tokens)) < 1e-5

    def test_costs_are_those_of_its_linear_layers(self) -> None:
        material = subject().make("cpu", 3)
        assert material.flops == 3 * LENGTH * (2 * 12 * FEATURES**2 + FEATURES * VOCABULARY)
        blocks = 2 * (12 * FEATURES**2 + (1 + 4 + 1) * FEATURES + 4 * FEATURES)  # weights, biases, normalizations
        assert material.parameters == blocks + 2 * FEATURES + (2 * VOCABULARY + LENGTH) * FEATURES
        assert subject(PROJECTION).make("cpu", 3).flops < material.flops

    @pytest.mark.parametrize("operator", [None, window(2)], ids=["original", "window_2"])
    def test_one_projection_by_itself(self, operator: syno.PGraph | None) -> None:
        material = subject(operator, layer=LAYER).make("cpu", 3)
        (x,) = material.make_inputs()
        assert (x.dtype, x.shape) == (torch.float32, (3, LENGTH, FEATURES))
        assert x.min() < -0.4 and x.max() > 0.4
        assert material.module(x).shape == (3, LENGTH, 3 * FEATURES)
        assert material.flops == 3 * LENGTH * FEATURES * 3 * FEATURES * (1 if operator is None else 2)

    @pytest.mark.parametrize("layer", [None, LAYER])
    def test_what_reads_ahead_is_refused(self, layer: str | None) -> None:
        with pytest.raises(SpecError, match="window_3 does not fit layer .* it reads ahead"):
            subject(window(3), layer=layer).make("cpu", 1)

    def test_wrong_names(self) -> None:
        with pytest.raises(UnknownNameError, match='unknown backbone of sequences "resnet8"; there are: gpt2, gpt_tiny'):
            subject(model="resnet8").make("cpu", 1)
        with pytest.raises(SpecError, match='gpt_tiny has no layer "c_attn" to replace; there are: transformer.h.0'):
            subject(layer="c_attn").make("cpu", 1)

    def test_fields_of_the_other_kind_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="memory_format"):
            subject(memory_format="contiguous")
        with pytest.raises(ValidationError, match="length"):
            NetworkSubject(model="resnet8", classes=2, image_shape=(3, 8, 8), length=8)  # type: ignore[call-arg]


class TestRecords:
    @pytest.mark.slow
    def test_an_operator_is_measured_and_checked(self, tmp_path: Path) -> None:
        record = tune(subject(PROJECTION), settings=FAST)
        assert (record.status, record.reason, record.name) == ("ok", "", "gpt2_projection")
        assert record.checked and record.reference == "network of literal modules"
        record.write(tmp_path / "record.json")
        assert TuningRecord.read(tmp_path / "record.json") == record
        assert json.loads((tmp_path / "record.json").read_text())["subject"]["kind"] == "language_model"

    @pytest.mark.slow
    def test_inductor(self) -> None:
        record = tune(subject(window(2)), "inductor", settings=FAST, time_limit_s=550)
        assert (record.status, record.reason, record.checked) == ("ok", "", True)
        assert record.largest_relative_error is not None and record.largest_relative_error < 1e-4

    @pytest.mark.slow
    @needs_torchao
    def test_all_but_the_operators_are_in_integers(self) -> None:
        material = subject(PROJECTION).make("cpu", 2)
        made = quantized(material.module, [material.make_inputs() for _ in range(3)])
        layers = [node for node in made.graph.nodes if "linear" in str(node.target)]
        assert len(layers) == 2 * 3 + 1  # of each block but its projection, and the head
        assert all("dequantize" in str(argument.target) for node in layers for argument in node.args[:2])

    @pytest.mark.slow
    @needs_torchao
    def test_integers(self) -> None:
        record = tune(subject(PROJECTION), "inductor-int8", settings=FAST, time_limit_s=550)
        assert (record.status, record.reason, record.checked) == ("ok", "", True)
        assert record.largest_relative_error is not None
        assert 1e-4 < record.largest_relative_error < 0.1  # float32 is below


class TestStages:
    @pytest.fixture(scope="class")
    @staticmethod
    def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
        return Experiment(
            name="small",
            workload={
                **{"model": "gpt_tiny", "layers": "paper", "data": "pydoc", "data_settings": {"length": LENGTH}},
                "training": {"batch": 4},
            },
            reward={"name": "loss"},
            tune={"compilers": ["eager"], "latency": FAST.model_dump()},
            output=tmp_path_factory.mktemp("results"),
        )

    def test_the_data_and_the_network_are_recorded(self, experiment: Experiment) -> None:
        record = prepare(experiment)
        assert (record.classes, record.length, record.image_shape, record.model) == (256, LENGTH, None, "gpt_tiny")
        assert record.layers == ("transformer.h.0.attn.c_attn", LAYER)
        material = subject(vocabulary=256).make("cpu", 1)
        assert (record.flops, record.parameters) == (material.flops, material.parameters)
        assert record.hash == experiment.network.data.hash
        assert DataRecord.read(experiment.folder / "data.json") == record

    def test_a_record_is_of_pictures_or_of_text(self, experiment: Experiment) -> None:
        fields = prepare(experiment).model_dump()
        for other in ({"length": None}, {"image_shape": (3, 8, 8)}):
            with pytest.raises(ValidationError, match="of pictures has an image_shape, one of a text has a length"):
                DataRecord(**{**fields, **other})

    @pytest.mark.slow
    def test_its_network_is_measured(self, experiment: Experiment) -> None:
        record = measure("tune", experiment, "gpt2_projection", "eager", "cpu")
        assert (record.status, record.reason) == ("ok", "")
        assert record.subject == subject(PROJECTION, vocabulary=256)


class TestCommands:
    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    @pytest.mark.slow
    def test_data_says_what_there_is(self, tmp_path: Path) -> None:
        config = {
            "name": "small",
            "workload": {"model": "gpt_tiny", "layers": "paper", "data": "pydoc", "data_settings": {"length": 64}},
            "reward": {"name": "loss"},
            "output": str(tmp_path),
        }
        (tmp_path / "small.yaml").write_text(json.dumps(config), encoding="utf-8")
        result = self.run("data", str(tmp_path / "small.yaml"))
        assert result.exit_code == 0, result.output
        first, second = result.stdout.splitlines()[0].split("; ")
        assert first.startswith("pydoc: ") and first.endswith(" sequences of 64 tokens, 256 different ones")
        assert second == "gpt_tiny: 2 layers to replace, 15,728,640 FLOPs, 278,592 parameters"

    @pytest.mark.slow
    def test_a_model_is_measured_without_its_experiment(self, tmp_path: Path) -> None:
        file = tmp_path / "record.json"
        sizes = ("--vocabulary", str(VOCABULARY), "--length", str(LENGTH), "--batch", "2")
        given = ("tune", "network", "gpt2_projection", "--model", "gpt_tiny", *sizes, "--compiler", "eager")
        result = self.run(*given, "--output", str(file))
        assert result.exit_code == 0, result.output
        record = TuningRecord.read(file)
        assert record.subject == subject(PROJECTION) and record.settings.batch == 2

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("gpt_tiny", "--image", "3x8x8"), "--image: gpt_tiny takes text, and this is for pictures"),
            (("gpt_tiny", "--channels-last"), "--channels-last: gpt_tiny takes text, and this is for pictures"),
            (("resnet8", "--length", "8"), "--length: resnet8 takes pictures, and this is for text; models of your own"),
            (("my:gpt", "--vocabulary", "8"), "--vocabulary: my:gpt takes pictures, and this is for text; models of your own"),
        ],
    )
    def test_options_of_the_other_kind_are_refused(
        self, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("COLUMNS", "300")
        result = self.run("tune", "network", "original", "--output", str(tmp_path / "record.json"), "--model", *options)
        assert result.exit_code == 2 and message in result.stderr

    def test_the_defaults_are_those_of_the_paper(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[Any] = []

        def tuned(asked_for: Any, *_: Any, **__: Any) -> TuningRecord:
            asked.append(asked_for)
            raise SpecError("that is enough")

        monkeypatch.setattr("syno.measure.tuning.tune", tuned)
        for model in (("gpt2",), ("my:gpt", "--length", "8"), ("my:net",)):
            self.run("tune", "network", "original", "--output", str(tmp_path / "record.json"), "--model", *model)
        assert asked == [
            LanguageModelSubject(model="gpt2", vocabulary=50257, length=2048, layers="paper"),
            LanguageModelSubject(model="my:gpt", vocabulary=50257, length=8),
            NetworkSubject(model="my:net", classes=1000, image_shape=(3, 224, 224), layers="spatial"),
        ]

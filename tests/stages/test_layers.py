"""Single layers as a stage: records that go on where they were, misfits, the table and the figure."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from result_tables import made_tables
from torch import nn
from typer.testing import CliRunner

import syno.measure.tuning
from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.config.groups import OperatorChoice
from syno.measure.layers_record import LayersRecord, MeasuredLayer
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.tuning_record import Device, TuningRecord
from syno.model.extraction import distinct_layers
from syno.run.table import latency_table, read_measurements
from syno.stages.figures import names, write_report
from syno.stages.measurements import KINDS, measure
from syno.stages.plan import plan
from syno.stages.results import StoredRun
from syno.stages.tables import make_tables
from syno.stages.workflow_stages import jobs

LAYERS = ["blocks.0.conv1", "blocks.1.conv1", "blocks.1.conv2", "blocks.2.conv1", "blocks.2.conv2"]


def two_convolutions(classes: int, channels: int = 3, width: float = 1.0, seed: int | None = None) -> nn.Module:
    """A stem, and a convolution of 7x7 pictures, which is replaced."""
    layers = [nn.Conv2d(channels, 16, 3, 2, 1, bias=False), nn.Conv2d(16, 16, 3, padding=1, bias=False)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(784, classes))


def record(subject: Any, compiler: str, **changes: Any) -> TuningRecord:
    """A measurement: 2 ms for the original, 0.5 ms for all else."""
    operator = subject.replacement
    return TuningRecord(**{
        "name": subject.title, "operator_id": None if operator is None else operator.id, "subject": subject,
        "compiler": compiler, "device": Device(kind="cpu", name="a processor", threads=1), "settings": {}, "status": "ok",
        "latency_ms": 2.0 if operator is None else 0.5, "versions": {}, "date": datetime(2030, 1, 1, tzinfo=UTC), **changes,
    })  # fmt: skip


class Measuring:
    """Stands for the measuring process. It is interrupted when it is called for the layer `stop`; `broken` fails."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stop = self.broken = ""

    def __call__(self, subject: Any, compiler: str, device: str, settings: Any, **options: Any) -> TuningRecord:
        if subject.layer == self.stop:
            raise KeyboardInterrupt
        self.calls.append(subject.layer)
        failed = (
            {"status": "crashed", "reason": "compiling: killed", "latency_ms": None} if subject.layer == self.broken else {}
        )
        return record(subject, compiler, settings=settings, **failed)


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    found = Measuring()
    monkeypatch.setattr(syno.measure.tuning, "tune", found)
    return found


@pytest.fixture
def small(done: Experiment, tmp_path: Path) -> Experiment:
    """The small experiment with its results, whose layers are to be measured, too. nas_pte_1 does not fit the narrowest."""
    shutil.copytree(done.folder, tmp_path / "small")
    train = done.train.model_copy(update={"baselines": (OperatorChoice(operator="nas_pte_1"),)})
    tune = done.tune.model_copy(update={"layers": True})
    return done.model_copy(update={"output": tmp_path / "small", "tune": tune, "train": train})


def test_an_interrupted_call_goes_on_at_the_layer_where_it_was(small: Experiment, measuring: Measuring) -> None:
    file = KINDS["layers"].file(small, "original", "eager", "cpu")
    measuring.stop = LAYERS[2]
    with pytest.raises(KeyboardInterrupt):
        measure("layers", small, "original", "eager", "cpu")
    (folder,) = file.parent.glob("eager-cpu.*/")
    assert measuring.calls == LAYERS[:2] and not file.exists() and len(list(folder.iterdir())) == 2
    (folder / f"{LAYERS[0]}.json").write_text("{", encoding="utf-8")  # damaged: measured again
    measuring.stop = ""
    found = measure("layers", small, "original", "eager", "cpu")
    assert measuring.calls == [*LAYERS[:2], LAYERS[0], *LAYERS[2:]]
    assert [layer.record.subject.layer for layer in found.layers] == LAYERS and LayersRecord.read(file) == found
    assert list(file.parent.iterdir()) == [file]


def test_layers_of_other_settings_are_measured_again(small: Experiment, measuring: Measuring) -> None:
    measuring.stop = LAYERS[1]
    with pytest.raises(KeyboardInterrupt):
        measure("layers", small, "original", "eager", "cpu")
    longer = small.tune.latency.model_copy(update={"least_ms": 2.0})
    measuring.stop = ""
    measure(
        "layers",
        small.model_copy(update={"tune": small.tune.model_copy(update={"latency": longer})}),
        "original",
        "eager",
        "cpu",
    )
    assert measuring.calls == [LAYERS[0], *LAYERS]
    assert len(list(KINDS["layers"].file(small, "original", "eager", "cpu").parent.iterdir())) == 1


@pytest.mark.slow
def test_misfits_and_failures_are_in_the_file_and_in_the_table(small: Experiment, measuring: Measuring) -> None:
    measure("layers", small, "original", "eager", "cpu")
    measuring.broken = LAYERS[3]
    measure("layers", small, "nas_pte_1", "eager", "cpu")
    assert LAYERS[0] not in measuring.calls[5:]  # nothing to measure
    tables = made_tables(small)
    layers = latency_table(StoredRun(small).layers, layers=True)
    found = layers.set_index(["key", "layer"])
    assert list(layers["layer"]) == 2 * LAYERS and list(tables.latency["key"].unique()) == list(tables.latency["key"])
    assert found.loc[("nas_pte_1", LAYERS[1]), "speedup"] == 4.0 and found.loc[("original", LAYERS[1]), "speedup"] == 1.0
    assert found.loc[("nas_pte_1", LAYERS[0]), "status"] == "misfit"
    assert "C_in=4 and half of C_out=4 must divide" in found.loc[("nas_pte_1", LAYERS[0]), "reason"]
    assert found.loc[("nas_pte_1", LAYERS[3]), ["status", "reason"]].tolist() == ["crashed", "compiling: killed"]
    assert pandas.read_parquet(small.folder / "tables" / "layers.parquet").equals(layers)
    rows = read_measurements(small.folder, "syno tables")
    assert rows[rows["layer"].notna()]["role"].value_counts().to_dict() == {"original": 5, "baseline": 5}

    assert names(small)[:4] == ("score-speedup", "score-latency", "speedup", "layers")
    page = write_report(small).read_text(encoding="utf-8")
    assert (
        'id="layers"' in page and "Speedup of single layers" in page and "0.500 ms (4.00×)" in page and "does not fit" in page
    )


def test_the_command_prints_each_layer(small: Experiment, measuring: Measuring, tmp_path: Path) -> None:
    config, file = tmp_path / "small.yaml", tmp_path / "layers.json"
    config.write_text(small.model_dump_json(), encoding="utf-8")
    arguments = ["tune", "layers", str(config), "nas_pte_1", "--output", str(file)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 and done.stdout.splitlines()[0] == "nas_pte_1, conv_i4_o8, eager on cpu: 0.5 ms"
    assert "nas_pte_1, conv_io4, eager on cpu: misfit: nas_pte_1 does not fit layer" in done.stderr
    measuring.broken = LAYERS[4]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1 and "nas_pte_1, conv_io16, eager on cpu: crashed: compiling: killed" in done.stderr
    done = CliRunner().invoke(app, [*arguments, "--device", "tpu"])
    assert done.exit_code == 2 and "tpu" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_file_of_another_operator_is_an_error(small: Experiment, measuring: Measuring) -> None:
    file = KINDS["layers"].file(small, "original", "eager", "cpu")
    measure("layers", small, "nas_pte_1", "eager", "cpu", file)
    with pytest.raises(
        SpecError, match=r"is the record of nas_pte_1 .*, not of original; delete it and run `syno tune layers`"
    ):
        make_tables(small)


def test_jobs_and_hours(small: Experiment) -> None:
    settings = {"workload": {"model": "resnet8"}, "train": {"baselines": ["nas_pte_1"]}, "study": {"n_trials": 0}}
    both, only, neither = (
        Experiment(name="x", **settings, tune={"compilers": ["eager", "tvm"], "layers": layers})
        for layers in (True, "only", False)
    )
    assert len(jobs(both, [])["tune"]) == len(jobs(both, [])["layers"]) == 4 and "tune" not in jobs(only, [])
    assert jobs(only, [])["layers"][0] == both.folder / "layers/original/eager-cpu.json"
    assert both.part("tune") == only.part("tune") == neither.part("tune")
    hours = {stage.rule: stage.device_hours for stage in plan(both).stages}
    assert hours["layers"] == pytest.approx(5 * 10 * (300 + 128) / 3600)  # five networks; TVM tunes two kernels of a layer
    assert plan(only).tuning_hours["cpu"] + plan(neither).tuning_hours["cpu"] == pytest.approx(plan(both).tuning_hours["cpu"])


def test_names_of_layers() -> None:
    """Layers have the paper's names in the paper's own ResNet-34 only."""
    shape = {"model": "resnet34", "classes": 10, "image_shape": (3, 224, 224), "layers": "paper", "layer": "layer2.0.conv1"}

    def name(**changes: Any) -> str:
        layer = record(NetworkSubject(**{**shape, **changes}), "eager")
        return MeasuredLayer(name="conv_i64_o128", position=7, record=layer).title

    assert name() == "conv_i64_o128"
    assert name(width=0.5) == name(image_shape=(3, 64, 64)) == name(model="resnet18") == "layer2.0.conv1"


def test_projections_have_names_too() -> None:
    subject = LanguageModelSubject(model="gpt_tiny", vocabulary=20, length=8)
    (found,) = distinct_layers(subject.backbone(), subject.example(), subject.layers)
    before = found.layer.values["H_in"]
    assert found.name == f"projection_i{before}_o{3 * before}"


@pytest.mark.slow
def test_inductor_measures_the_layers(tmp_path: Path) -> None:
    """In processes of their own, with checked outputs: of the module baseline, and of the layer as it is."""
    experiment = Experiment(
        name="own",
        workload={
            "model": f"{__name__}:two_convolutions",
            "layers": "paper-3x3",
            "data_settings": {"preset": "micro", "size": 14},
        },
        tune={"compilers": ["inductor"], "layers": "only", "latency": {"least_ms": 1, "warm_up_ms": 0, "most_repeats": 6}},
        output=tmp_path,
    )
    for key in ("original", "nas_pte_3"):
        (layer,) = measure("layers", experiment, key, "inductor", "cpu").layers
        assert layer.record.status == "ok" and layer.record.checked and layer.name == "conv_io16", layer.record.reason

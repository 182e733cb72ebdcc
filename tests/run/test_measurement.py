"""The one schema of measurements: its file, its table, and what records of trainings and tunings give."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from pydantic import ValidationError
from result_tables import results, score_table
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import SUSPICIOUS, Device, TuningRecord
from syno.report.layer_tables import layer_table
from syno.report.page_tables import summary
from syno.run.measurement import QUANTITIES, UNITS, Measurement, Measurements
from syno.run.rows import rows_of, rows_of_training
from syno.run.table import COLUMNS, measurement_table
from syno.run.views import latencies_of, layers_of
from syno.train.settings import WorkloadSettings
from syno.train.training_record import TrainingRecord

WHEN = datetime(2030, 1, 1, tzinfo=UTC)


def measured(**changes: Any) -> Measurement:
    fields = {"operator": "original", "model": "resnet8", "origin": "measured", "source": "a file", "when": WHEN}
    return Measurement.of("latency", 2.5, **{**fields, **changes})


def tuned(**changes: Any) -> TuningRecord:
    subject = NetworkSubject(model="resnet8", classes=5, image_shape=(3, 16, 16))
    fields: dict[str, Any] = {
        "name": "original", "operator_id": None, "subject": subject, "compiler": "inductor",
        "device": Device(kind="cpu", name="a processor", threads=1), "settings": LatencySettings(batch=4), "status": "ok",
        "latency_ms": 2.0, "repeats": 20, "flops": 4000, "parameters": 10, "versions": {"torch": "9.9"}, "date": WHEN,
    }  # fmt: skip
    return TuningRecord(**{**fields, **changes})


def trained(**changes: Any) -> TrainingRecord:
    fields: dict[str, Any] = {
        "name": "conv1x1", "operator": str(OPERATORS["conv1x1"]()), "operator_id": OPERATORS["conv1x1"]().id,
        "workload": WorkloadSettings(), "data_hash": "ab", "seed": 3, "metric": "accuracy", "score": 0.75,
        "scores": (0.5, 0.75), "losses": (1.0, 0.5), "stopped": None, "flops": 1000.0, "parameters": 10, "cpu_seconds": 1.0,
        "threads": 1, "device": "cpu", "versions": {"torch": "9.9"}, "date": WHEN,
    }  # fmt: skip
    return TrainingRecord(**{**fields, **changes})


def test_a_file_of_measurements_is_read_as_it_was_written(tmp_path: Path) -> None:
    many = Measurements(measurements=(measured(), measured(layer="conv1", repeats=3, seed=0, versions={"torch": "9.9"})))
    many.write(tmp_path / "many.json")
    assert Measurements.read(tmp_path / "many.json") == many
    measured().write(tmp_path / "one.json")
    assert Measurement.read(tmp_path / "one.json") == measured()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "many.json").write_text('{"measurements": [{"operator": "x"}]}', encoding="utf-8")
    with pytest.raises(SpecError, match=r"many.json .*measurements.0.metric"):
        Measurements.read(tmp_path / "many.json")


def test_every_metric_has_its_unit() -> None:
    assert set(UNITS) == set(QUANTITIES)
    assert measured().unit == "ms"
    with pytest.raises(ValidationError, match=r'latency is measured in "ms"; given: "s"'):
        Measurement.model_validate({**measured().model_dump(), "unit": "s"})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_failed_record_gives_no_measurement(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Measurement.of("loss", value, operator="original", origin="measured", source="a file")


def test_the_table_has_a_column_for_each_field(tmp_path: Path) -> None:
    table = measurement_table([measured(versions={"b": "2", "a": "1"}), measured(when=None, seed=7)])
    table.to_parquet(tmp_path / "table.parquet")
    again = pandas.read_parquet(tmp_path / "table.parquet")
    assert tuple(again.columns) == COLUMNS == tuple(Measurement.model_fields)
    assert again["versions"].tolist() == ['{"a": "1", "b": "2"}', "{}"]
    assert again["when"].isna().tolist() == [False, True] and again["when"][0] == WHEN
    assert again["seed"].isna().tolist() == [True, False] and again["seed"][1] == 7
    assert again["layer"].isna().all()


def test_a_table_of_nothing_has_its_columns() -> None:
    assert tuple(measurement_table([]).columns) == COLUMNS


def test_a_training_gives_its_score_and_the_costs() -> None:
    accuracy, flops, parameters = rows_of_training(trained(), "train/x/seed3.json")
    assert (accuracy.metric, accuracy.value, accuracy.unit) == ("accuracy", 0.75, "fraction")
    assert (accuracy.operator, accuracy.operator_id, accuracy.seed) == ("conv1x1", OPERATORS["conv1x1"]().id, 3)
    assert (accuracy.model, accuracy.data, accuracy.device) == ("resnet8", "glyphs", "cpu")
    assert (accuracy.origin, accuracy.source, accuracy.when) == ("measured", "train/x/seed3.json", WHEN)
    assert (flops.metric, flops.value, parameters.metric, parameters.value) == ("flops", 1000.0, "parameters", 10)


def test_a_training_on_text_gives_its_perplexity_too() -> None:
    record = trained(metric="loss", score=math.log(99.0), scores=(5.0, 4.6))
    found = {row.metric: row.value for row in rows_of_training(record, "a file")}
    assert found["perplexity"] == pytest.approx(99.0) and found["loss"] == pytest.approx(math.log(99.0))
    assert "perplexity" not in {row.metric for row in rows_of_training(trained(), "a file")}


def test_a_training_that_broke_has_no_loss() -> None:
    found = rows_of_training(trained(metric="loss", score=math.inf), "a file")
    metrics = [one.metric for one in found if one.status == "ok"]
    assert metrics == ["flops", "parameters"]


def test_a_tuning_gives_latency_and_costs_of_one_sample() -> None:
    latency, flops, parameters = rows_of(tuned(), "tune/original/inductor-cpu.json")
    assert (latency.metric, latency.value, latency.unit, latency.repeats) == ("latency", 2.0, "ms", 20)
    assert (latency.model, latency.layer, latency.device, latency.compiler) == ("resnet8", None, "a processor", "inductor")
    assert (flops.value, flops.repeats, parameters.value) == (1000.0, None, 10)
    assert latency.note == ""


def test_one_layer_and_an_operator_by_itself() -> None:
    layer = tuned(subject=NetworkSubject(model="resnet8", classes=5, image_shape=(3, 16, 16), layer="conv1"))
    operator = tuned(subject=OperatorSubject.of(OPERATORS["conv1x1"](), {"C_in": 4, "C_out": 8, "H": 4}))
    assert [(one.model, one.layer) for one in [*rows_of(layer, "f")][:1]] == [("resnet8", "conv1")]
    assert [(one.model, one.layer) for one in [*rows_of(operator, "f")][:1]] == [(None, "C_in=4, C_out=8, H=4")]


@pytest.mark.parametrize("status", ["failed", "partial"])
def test_records_that_do_not_compare_give_no_measurements(status: str) -> None:
    found = rows_of(tuned(status=status, reason="why", latency_ms=2.0 if status == "partial" else None), "a file")
    assert [(one.metric, one.status) for one in found] == [("latency", status)]


def test_a_time_beyond_the_machines_peak_is_marked() -> None:
    assert [one.note for one in rows_of(tuned(suspicious=True), "a file")] == [SUSPICIOUS, "", ""]


def test_the_share_of_the_limit_is_in_the_tables_and_what_the_command_prints() -> None:
    record = tuned(latency_low_ms=1.5, latency_high_ms=2.5, limit_ms=0.5, remark="native kernels in 2 of 3 layers")
    (line,) = record.lines()
    assert line.text.endswith("2 ms (95 % in 1.5 to 2.5; 25 % of the limit), native kernels in 2 of 3 layers")
    place = {"key": "original", "role": "original", "device_setting": "cpu"}
    layer = tuned(subject=NetworkSubject(model="resnet8", classes=5, image_shape=(3, 16, 16), layer="conv1"), limit_ms=1.0)
    rows = [*rows_of(record, "f", **place), *rows_of(layer, "f", **place)]
    unknown = rows_of(tuned(compiler="eager"), "f", **place)
    latencies, layers = latencies_of([*rows, *unknown]), layers_of(rows)
    found = results(latencies=latencies, layers=layers, scores=score_table()[:0])
    assert [[cell.text for cell in row][-3:] for row in summary(found).rows] == [["2.00 ms (1.00×)", "2.00 ms (1.00×)", "25 %"]]
    assert summary(found).columns[-2:] == ("inductor on cpu", "share of the limit, inductor on cpu")
    assert layer_table(found).columns[-2:] == ("original", "share of the limit, original")
    assert [cell.text for row in layer_table(found).rows for cell in row][-2:] == ["2.00 ms (1.00×)", "50 %"]


def test_the_measurements_of_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(
        "name: small\nspec: {preset: resnet18}\noriginal: {flops: 1.0e+9, parameters: 1000}\n", encoding="utf-8"
    )
    empty = CliRunner().invoke(app, ["measurements", "small.yaml"])
    assert empty.exit_code == 2 and "has no record of a training or a measurement yet" in empty.stderr
    trained().write(Path("results/small/train/abc/seed3.json"))
    tuned().write(Path("results/small/tune/original/inductor-cpu.json"))
    done = CliRunner().invoke(app, ["measurements", "small.yaml"])
    assert done.exit_code == 0 and done.stdout.startswith("6 measurements in results/small/tables/measurements.parquet"), done
    table = pandas.read_csv("results/small/tables/measurements.csv")
    assert table["metric"].tolist() == ["accuracy", "flops", "parameters", "latency", "flops", "parameters"]
    assert set(table["source"]) == {"train/abc/seed3.json", "tune/original/inductor-cpu.json"}

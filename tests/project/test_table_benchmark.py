"""The parts of benchmarks/table.py that compute: rank correlations, what operators read, records."""

import importlib
import json
from pathlib import Path

import numpy
import pytest
from scipy.stats import spearmanr

import syno

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _modules(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_a_rank_correlation_and_its_part_beyond_others(monkeypatch) -> None:
    statistics = importlib.import_module("table_statistics")
    monkeypatch.setattr(statistics, "SAMPLES", 200)
    spearman = statistics.spearman
    random = numpy.random.default_rng(0)
    cause, noise = random.normal(size=(2, 60))
    effect = numpy.exp(cause) + 0.1 * noise
    found = spearman(cause, effect)
    assert found.value == pytest.approx(spearmanr(cause, effect).statistic)
    assert found.low < found.value < found.high < 1
    also = cause + 0.01 * random.normal(size=60)  # says nothing that the cause does not
    beyond = spearman(also, effect, [cause])
    assert spearman(also, effect).value > 0.9 and beyond.low < 0 < beyond.high
    assert str(spearman([1, 2], [2, 3])) == "–"


@pytest.mark.parametrize(("name", "once", "meets"), [("conv2d", (3, 3, 9), True), ("conv1x1", (1, 1, 1), False)])
def test_positions_and_channels_that_an_operator_reads_are_counted(name, once, meets) -> None:
    table_draw = importlib.import_module("table_draw")
    operator = syno.OPERATORS[name]()
    rows, columns, positions, channels, _ = table_draw.reading(operator, 1)
    assert (len(rows), len(columns), positions, channels) == (*once, 16)
    assert table_draw.meets(table_draw.reading(operator, 2)) is meets


def test_a_record_is_made_once_and_a_claim_of_a_dead_process_is_taken_over(tmp_path) -> None:
    records = importlib.import_module("table_records")
    records.keep(tmp_path, "made", {"value": 1})
    (tmp_path / "dead.claim").write_text("999999999")
    names = records.missing(tmp_path, ["made", "dead", "new"])
    assert next(names) == "dead"
    assert list(records.missing(tmp_path, ["made", "dead", "new"])) == ["new"]
    records.keep(tmp_path, "dead", {"value": 2})
    assert {name: one["value"] for name, one in records.read(tmp_path).items()} == {"made": 1, "dead": 2}
    assert not (tmp_path / "dead.claim").exists()


def test_the_experiment_of_the_table_is_that_of_the_kept_one() -> None:
    records = importlib.import_module("table_records")
    about = json.loads((ROOT / "syno/paper/replay/resnet8/about.json").read_text())
    assert about["experiment"] == records.EXPERIMENT.read_text()

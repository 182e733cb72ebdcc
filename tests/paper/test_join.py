"""Joined results on small data: published accuracies, latencies of made-up records, and what is missing of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas
import pytest
import yaml
from result_tables import made_tables
from small_artifact import write_artifact
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment, load_experiments
from syno.config.left_out import leaving_out, record_devices
from syno.config.stages import TuneSettings
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.tuning_record import Device, TuningRecord
from syno.paper.figures.catalogue import PAPER_FIGURES, Numbers
from syno.paper.numbers import MOBILE_CPU
from syno.paper.stages.artifact import import_artifact
from syno.paper.stages.figures import read_numbers, write_headlines
from syno.paper.stages.join import JoinRecord, find_join, join, notes
from syno.report.page import page
from syno.report.result_figures import pictures
from syno.run.table import read_losses, read_measurements
from syno.stages import figures, results
from syno.stages.figures import draw, write_report
from syno.stages.measurements import KINDS
from syno.stages.operators import repair_store
from syno.stages.select import select
from syno.stages.store import OperatorStore
from syno.stages.tables import make_tables
from syno.stages.top import top

pytestmark = pytest.mark.slow  # several whole experiments come before

CONFIG = {
    "name": "group",
    "common": {
        "workload": {"model": "resnet18", "layers": "paper-3x3", "data": "shapes"},
        "train": {"seeds": []},
        "tune": {"compilers": ["eager", "inductor"]},
    },
    "experiments": {
        "published": {"artifact": "data"},
        "again": {"select": {"source": "published", "count": 1}},
        "chosen": {"select": {"operators": ["operator_2"]}},
        "figures": {"join": {"of": "all"}},
    },
}
TIMES = {"original": 12.0, "operator_1": 4.0, "operator_2": 3.0}  # ms


def record(experiment: Experiment, name: str, compiler: str, **changes: object) -> None:
    """Write the record of a latency as if it had been measured."""
    graph = None if name == "original" else OPERATORS[name]()
    assert experiment.workload is not None
    subject = NetworkSubject(
        model="resnet18",
        layers="paper-3x3",
        classes=1000,
        image_shape=(3, 224, 224),
        operator=None if graph is None else str(graph),
    )
    fields = {
        "name": name,
        "operator_id": None if graph is None else graph.id,
        "subject": subject,
        "compiler": compiler,
        "device": Device(kind="cpu", name="a processor", threads=1),
        "settings": experiment.tune.latency,
        "status": "ok",
        "latency_ms": TIMES[name],
        "versions": {},
        "date": datetime(2030, 1, 1, tzinfo=UTC),
    }
    key = name if graph is None else graph.id[:12]
    TuningRecord.model_validate({**fields, **changes}).write(KINDS["tune"].file(experiment, key, compiler, "cpu"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an import, and with records of latencies in two experiments. Not to be changed."""
    folder = tmp_path_factory.mktemp("joined")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("group.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        found = load_experiments(Path("group.yaml"))
        import_artifact(write_artifact(folder / "artifact"), found["published"].folder)
        for name, operator in (("again", "operator_1"), ("chosen", "operator_2")):
            select(found[name])
            record(found[name], "original", "eager")
            record(found[name], operator, "eager")
            record(found[name], "original", "inductor")
        nothing = {"latency_ms": None, "status": "compile_failed", "reason": "no kernel"}
        record(found["again"], "operator_1", "inductor", **nothing)
        for name in ("again", "chosen"):
            make_tables(found[name])
    return folder


@pytest.fixture
def group(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Experiment]:
    shutil.copytree(whole / "results", tmp_path / "results")
    shutil.copy(whole / "group.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return load_experiments(Path("group.yaml"))


@pytest.mark.slow
def test_figure_5_has_own_latencies_and_published_accuracies_without_a_training(group: dict[str, Experiment]) -> None:
    made = join(group["figures"])
    assert JoinRecord.read(group["figures"].folder / "joined.json") == made
    draw(group["figures"], "figure-5")
    table = pandas.read_csv(group["figures"].folder / "tables" / "figure-5.csv")
    (own,) = table[table["device"] == "a processor"].to_dict("records")
    assert (own["operator"], own["compiler"], own["speedup"], own["accuracy"]) == ("operator_1", "eager", 3.0, 0.799)
    assert len(table) > 1  # and those of the artifact
    assert write_headlines(group["figures"].folder)["computed"].notna().any()


def test_the_record_says_what_is_joined_and_what_is_missing(group: dict[str, Experiment]) -> None:
    found = join(group["figures"])
    assert {one.name: set(one.measurements) for one in found.experiments} == {
        **{"published": {"artifact"}, "again": {"measured"}, "chosen": {"measured"}, "paper": {"paper"}},
    }
    assert found.operators == {name: OPERATORS[name]().id[:12] for name in ("operator_1", "operator_2")}
    missing = [line for line in found.missing if not line.startswith("published: ")]
    assert missing == [
        "chosen: 1 of 4 measurements are not there yet",
        "again: latency of operator_1 in resnet18, inductor on a processor: compile_failed: no kernel",
        "gpt2: no latency of the network",
    ]
    lines = notes(found)
    assert "joined: again (results/group/again): 4 measured" in lines and f"missing: {missing[0]}" in lines


def test_a_processor_that_stands_for_the_papers(group: dict[str, Experiment]) -> None:
    """The settings of its experiment say so, also after it was measured; a name that nobody else has is missing."""
    for name, meant in (("again", MOBILE_CPU), ("chosen", "Jetson Orin Nano")):
        tune = {**group[name].tune.model_dump(), "stands_for": {"cpu": meant}}
        make_tables(group[name].model_copy(update={"tune": TuneSettings(**tune)}))
    found = join(group["figures"])
    alone = [line for line in found.missing if "stands for" in line]
    assert len(alone) == 1 and alone[0].startswith(
        "chosen: cpu stands for Jetson Orin Nano, of which no other results are here."
    )
    rows = read_measurements(group["figures"].folder, "syno join")
    own = rows[(rows["experiment"] == "again") & (rows["metric"] == "latency")]
    assert set(own["device"]) == {"a processor"} and set(own["device_stands_for"]) == {MOBILE_CPU}
    table = PAPER_FIGURES["figure-5"].tables(read_numbers(group["figures"].folder))["figure-5"]
    here = table[table["latency_origin"] == "measured"].set_index("device")
    assert here.loc[MOBILE_CPU, "operator"] == "operator_1" and "mobile CPU, measured" in set(here["place"])


def test_a_device_that_is_left_out_is_below_figures_and_on_the_page_and_nothing_of_it_is_missing(
    group: dict[str, Experiment],
) -> None:
    tune = {**group["again"].tune.model_dump(), "devices": ["cpu", {"device": "cuda", "optional": True}]}
    asked = group["again"].model_copy(update={"tune": TuneSettings(**tune)})
    made = leaving_out(asked, {"cuda": "no GPU is here"})
    record_devices(made)
    make_tables(made)
    found = join(group["figures"])
    assert found.left_out == ("device cuda of again: no GPU is here",)
    assert f"left out: {found.left_out[0]}" in notes(found)
    assert not any(line.startswith("again: ") and "are not there yet" in line for line in found.missing)
    shown = PAPER_FIGURES["figure-5"].notes(read_numbers(group["figures"].folder), found.left_out)
    assert any(line.startswith(f"Left out: {found.left_out[0]}") for line in shown)


def test_the_page_is_that_of_published_data(group: dict[str, Experiment], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the operators of all experiments, by their names in the table, and the lines of the record."""
    found = join(group["figures"])

    def shown(numbers: Numbers, operators: Mapping[str, PGraph], lines: Sequence[str]) -> str:
        assert {name: graph.name for name, graph in operators.items()} == dict(zip(operators, operators, strict=True))
        return f"{len(numbers.rows)} rows, {', '.join(operators)}, {lines == notes(found)}"

    monkeypatch.setattr("syno.paper.figures.page.paper_page", shown)
    text = write_report(group["figures"]).read_text(encoding="utf-8")
    assert text == f"{found.measurements} rows, operator_1, operator_2, True"  # with those that failed, which figures list


def test_by_hand_what_is_there_is_joined(group: dict[str, Experiment]) -> None:
    shutil.rmtree(group["chosen"].folder)
    shutil.rmtree(group["again"].folder / "tables")
    result = CliRunner().invoke(app, ["join", "group.yaml"])  # the only one of the file that joins
    assert result.exit_code == 0, result.output
    assert "missing: again: no table of measurements; `syno tables` makes it\n" in result.stdout
    assert "missing: chosen: results/group/chosen is not there\n" in result.stdout
    assert "measurements of published, paper in results/group/figures" in result.stdout.replace("\n", " ")
    shutil.rmtree(group["published"].folder)
    with pytest.raises(SpecError, match='"figures" .*published is not there'):
        join(group["figures"])


def test_loss_curves_say_where_they_come_from(group: dict[str, Experiment]) -> None:
    join(group["figures"])
    losses = read_losses(group["figures"].folder, "syno join")
    assert losses[["operator", "model", "data", "origin", "experiment"]].drop_duplicates().values.tolist() == [
        ["original", "gpt2", "lm1b", "artifact", "published"]
    ]


def test_operators_that_the_store_has_lost_are_those_of_the_joined_experiments(group: dict[str, Experiment]) -> None:
    found = join(group["figures"])
    key = found.operators["operator_1"]
    file = group["figures"].folder / "operators" / f"{key}.txt"
    file.unlink()
    repair_store(group["figures"], {key})
    assert OperatorStore(group["figures"].folder).get(key).id.startswith(key)


def test_latencies_alone_have_a_table_and_a_page(group: dict[str, Experiment]) -> None:
    again = group["again"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in top("group/again", 5).splitlines()]
    assert rows[0] == ["operator", "eager on cpu/ms", "inductor on cpu/ms"]
    assert rows[2:] == [["original", "12.000 (1.00x)", "12.000 (1.00x)"], ["operator_1", "4.000 (3.00x)", "compile_failed"]]
    assert set(read_measurements(again.folder, "syno tables")["metric"]) == {"latency"}
    found = results.read(again)
    assert list(found.operators) == ["operator_1"] and "resnet18 on shapes, not trained" in found.notes
    assert 'data-name="operator_1"' in page(found, pictures(found, figures.names(again)))
    shutil.rmtree(again.folder / "tune")
    with pytest.raises(SpecError, match="has no measurement yet; `syno tune model` writes one"):
        make_tables(again)


def test_only_the_original_is_measured_in_8_bit_integers(group: dict[str, Experiment]) -> None:
    """Its record has the tolerance of the compiler, which is not a difference from the settings."""
    tune = group["again"].tune.model_copy(update={"original_compilers": ("inductor-int8",)})
    again = group["again"].model_copy(update={"tune": tune})
    record(again, "original", "inductor-int8", settings=tune.latency.model_copy(update={"tolerance": 0.1}))
    compilers = made_tables(again).latency.groupby("operator")["compiler"].agg(set)
    assert dict(compilers) == {"original": {"eager", "inductor", "inductor-int8"}, "operator_1": {"eager", "inductor"}}
    record(again, "original", "inductor-int8", settings=tune.latency.model_copy(update={"tolerance": 0.2}))
    with pytest.raises(SpecError, match="latency.tolerance is 0.2 there, 0.1 here"):
        make_tables(again)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("group.yaml:again", 'experiment "again" joins no results; give join'),
        ("two.yaml", "2 experiments join results: figures, m"),
    ],
)
def test_wrong_joins_are_one_error(given: str, message: str, group: dict[str, Experiment]) -> None:
    more = {**CONFIG["experiments"], "more": {"join": {"of": ["figures"]}}}  # type: ignore[dict-item]
    Path("two.yaml").write_text(yaml.safe_dump({**CONFIG, "experiments": more}), encoding="utf-8")
    with pytest.raises(SpecError, match=message):
        join(find_join(given))

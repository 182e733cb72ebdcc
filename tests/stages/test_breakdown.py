"""Where the time goes: shares of an operator's stages, the record, the stage, the table, and the figure."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from typer.testing import CliRunner

import syno
from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.cli import app
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure import breakdown_record
from syno.measure.breakdown_record import BreakdownRecord, StageTime, stage_shares
from syno.measure.network_subject import NetworkSubject
from syno.measure.speedup_measuring import layers_of
from syno.measure.speedup_record import Conditions, LayerSpeedup, SpeedupRecord
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Device
from syno.report.result_figures import BREAKDOWN, breakdown_figure
from syno.run.breakdown import parts_of_record
from syno.run.table import breakdown_table, read_breakdown
from syno.stages import speedups
from syno.stages.figures import names, write_report
from syno.stages.measurements import KINDS, measure
from syno.stages.results import StoredRun
from syno.stages.tables import make_tables
from syno.stages.workflow_stages import jobs

OPERATOR = OPERATORS["separable_conv2d"]()
STAGES = (StageTime(name="conv2d", share=0.25), StageTime(name="conv2d", share=0.5), StageTime(name="other", share=0.25))
SETTINGS = LatencySettings(warm_up_ms=0, least_repeats=6)


def around(value: float) -> Interval:
    return Interval(value=value, low=0.9 * value, high=1.2 * value)


def a_speedup(compiler: str = "eager", **changes: Any) -> SpeedupRecord:
    """Two layers of 4 ms become 1 ms each, one of 3 ms becomes 6 ms, and the rest takes 1 ms."""
    sizes = [("conv_io4", 2, 4.0, 1.0, 4.0), ("conv_io4", 1, 3.0, 6.0, 0.5)]
    layers = [
        LayerSpeedup(name=name, count=count, original_ms=around(before), latency_ms=around(after), speedup=around(ratio))
        for name, count, before, after, ratio in sizes
    ]
    conditions = Conditions(
        operator_id=OPERATOR.id, network=NetworkSubject(model="resnet8", width=0.25, classes=4, image_shape=(3, 8, 8)),
        measured="layers", compiler=compiler, device=Device(kind="cpu", name="a processor", threads=1), machine="a machine",
        settings=LatencySettings(least_ms=1, warm_up_ms=0, most_repeats=6, least_repeats=6), versions={},
    )  # fmt: skip
    fields: dict[str, Any] = {
        "name": OPERATOR.name, "operator": str(OPERATOR), "conditions": conditions, "status": "ok", "latency_ms": around(9.0),
        "original_ms": around(12.0), "ratio": around(1.25), "drift": 0.0, "layers": layers, "rest_ms": 1.0,
        "date": datetime(2030, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    return SpeedupRecord(**{**fields, **changes})


def a_record(speedup: SpeedupRecord | None = None, **changes: Any) -> BreakdownRecord:
    fields = {"name": OPERATOR.name, "operator_id": OPERATOR.id, "stages": (STAGES, STAGES), "date": datetime.now(UTC)}
    return BreakdownRecord(**{**fields, "speedup": speedup or a_speedup(), **changes})


class TestShares:
    @pytest.fixture(autouse=True)
    def _steady_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each statement takes a second."""
        seconds = itertools.count()
        monkeypatch.setattr(breakdown_record.time, "perf_counter", lambda: next(seconds))

    def test_the_calls_of_the_code_are_stages_in_their_order(self) -> None:
        module = syno.build(OPERATOR, {"C_in": 8, "C_out": 8, "H": 6}, seed=0)
        with torch.no_grad():
            found = stage_shares(module, (torch.zeros(2, 8, 6, 6),), SETTINGS)
        calls = [stage for stage in found if stage.code]
        assert [stage.name for stage in calls if stage.name == "conv2d"] == ["conv2d", "conv2d"]
        assert sum(stage.share for stage in found) == pytest.approx(1.0) and found[-1].name == "other"
        assert len({stage.share for stage in calls}) == 1  # a second each

    def test_the_pooling_by_a_stride_is_one_of_them(self) -> None:
        module = nn.Sequential(nn.AvgPool2d(2), syno.build(OPERATOR, {"C_in": 8, "C_out": 8, "H": 3}, seed=0))
        with torch.no_grad():
            assert stage_shares(module, (torch.zeros(2, 8, 6, 6),), SETTINGS)[0].name == "pooling"

    def test_a_module_of_ones_own_has_none(self) -> None:
        assert stage_shares(nn.Conv2d(3, 3, 3), (torch.zeros(1, 3, 4, 4),), SETTINGS) == ()


class TestFigure:
    def test_bars_are_the_times_of_all_layers_of_a_size(self) -> None:
        parts = list(parts_of_record(a_record(), key="k", role="found", compiler="eager", device="cpu"))
        times, speedups = breakdown_figure(parts).axes
        assert [label.get_text() for label in times.get_yticklabels()] == [
            "whole network", "2 × conv_io4", "conv_io4 (2)", "other layers"
        ]  # fmt: skip
        bars: dict[int, list[float]] = {}
        for bar in times.patches:
            if bar.get_width():
                bars.setdefault(round(bar.get_y() + bar.get_height() / 2), []).append(bar.get_width())
        assert bars == {0: [12, 9], 1: [8, 0.5, 1.0, 0.5], 2: [3, 1.5, 3.0, 1.5], 3: [1]}
        points = {float(line.get_xdata()[0]) for line in speedups.lines if line.get_marker() == "o"}
        assert points == {1.25, 4.0, 0.5}
        ends = {tuple(segment[:, 0]) for bars in speedups.collections for segment in bars.get_segments()}
        assert ends == {(0.9 * value, 1.2 * value) for value in points}

    def test_what_could_not_be_measured_is_a_note(self) -> None:
        broken = {"latency_ms": None, "original_ms": None, "ratio": None, "drift": None, "layers": (), "rest_ms": None}
        record = a_record(a_speedup(**broken, status="misfit", reason="too wide"), stages=())
        parts = list(parts_of_record(record, key="k", role="found", compiler="eager", device="cpu"))
        (axes,) = breakdown_figure(parts).axes
        assert axes.texts[0].get_text() == "separable_conv2d, eager on cpu: too wide"
        assert "No operator's layers" in breakdown_figure([]).axes[0].texts[0].get_text()


def test_the_share_of_the_limit_is_in_the_table_and_what_the_command_prints() -> None:
    first, *others = a_speedup().layers
    limited = first.model_copy(update={"original_limit_ms": 2.0, "limit_ms": 0.25})
    record = a_record(a_speedup(layers=(limited, *others), original_limit_ms=6.0, limit_ms=0.9))
    shown = next(iter(record.lines("eager on cpu"))).text
    assert "4 ms (50 % of the limit) before, 1 ms (25 % of the limit) after, conv2d" in shown
    table = breakdown_table(parts_of_record(record, key="k", role="found", compiler="eager", device="cpu"))
    known = table.dropna(subset=["of_limit"])
    assert list(zip(known["part"], known["layer"].fillna(""), known["of_limit"], strict=True)) == [
        ("original", "", 0.5), ("network", "", pytest.approx(0.1)),
        ("original", "conv_io4", 0.5), ("operator", "conv_io4", 0.25),
    ]  # fmt: skip


def test_a_record_is_of_layers_and_of_one_operator() -> None:
    whole = a_speedup().conditions.model_copy(update={"measured": "network"})
    for wrong in ({"speedup": a_speedup(conditions=whole)}, {"operator_id": "0"}):
        with pytest.raises(ValidationError, match="not one of the same operator that was measured by layers"):
            a_record(**wrong)
    with pytest.raises(ValidationError, match="stages of 1 layers, and times of 2"):
        a_record(stages=(STAGES,))


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_stages_are_of_each_size_of_the_layers_where_they_are_not_fused(compiler: str) -> None:
    speedup = a_speedup(compiler)
    sizes = layers_of(speedup.conditions.network)
    layers = [speedup.layers[0].model_copy(update={"name": name}) for name in sizes.titles]
    speedup = speedup.model_copy(update={"layers": tuple(layers)})
    here: Any = SimpleNamespace(
        network=speedup.conditions.network, compiler=compiler, device="cpu", remote=None, settings=SETTINGS
    )
    found = BreakdownRecord.make(OPERATOR, speedup, here).stages
    assert len(found) == (len(layers) if compiler == "eager" else 0)
    assert all(sum(stage.share for stage in stages) == pytest.approx(1.0) for stages in found)


@pytest.fixture
def small(done: Experiment, tmp_path: Path) -> Experiment:
    """The small experiment with the setting, in a folder of its own."""
    for name in ("train", "tune", "operators", "search"):
        (tmp_path / name).symlink_to(done.folder / name)
    for file in done.folder.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return done.model_copy(update={"output": tmp_path, "tune": done.tune.model_copy(update={"breakdown": True})})


@pytest.mark.slow  # a whole search comes before
class TestStage:
    def test_the_command_writes_a_record_which_tables_and_page_show(
        self, small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(speedups, "speedups_of", lambda *given, **options: nullcontext())
        monkeypatch.setattr(speedups, "measured_speedups", lambda *given: iter([(a_speedup(), False)]))
        monkeypatch.setattr(BreakdownRecord, "make", lambda operator, speedup, speedups: a_record(speedup))
        config = tmp_path / "small.yaml"
        config.write_text(small.model_dump_json(), encoding="utf-8")
        shown = CliRunner().invoke(app, ["tune", "breakdown", str(config), "separable_conv2d"])
        assert shown.exit_code == 0, shown.output
        assert "2 x conv_io4: 4 ms before, 1 ms after, conv2d 25 %, conv2d 50 %, other 25 %" in shown.stdout
        file = KINDS["breakdown"].file(small, "separable_conv2d", "eager", "cpu")
        assert BreakdownRecord.read(file).speedup == a_speedup()
        make_tables(small)
        parts = read_breakdown(small.folder, "syno tables")
        assert {part.source for part in parts} == {"breakdown/separable_conv2d/eager-cpu.json"} and len(parts) == 2 + 2 * 5 + 1
        assert "breakdown" in names(small) and BREAKDOWN in write_report(small).read_text(encoding="utf-8")

        other = a_speedup().conditions.model_copy(update={"settings": LatencySettings(batch=9)})
        a_record(a_speedup(conditions=other)).write(file)
        with pytest.raises(SpecError, match=r"is of other settings than the experiment: .* run `syno tune breakdown`"):
            make_tables(small)
        assert StoredRun(small).scores  # they are as before

    def test_wrong_input_is_one_clear_error(self, small: Experiment) -> None:
        with pytest.raises(SpecError, match='"board" is not a device of this machine'):
            measure("breakdown", small, "separable_conv2d", "eager", "board")
        with pytest.raises(SpecError, match="the original network is measured beside each operator"):
            measure("breakdown", small, "original", "eager", "cpu")

    def test_there_is_a_job_for_each_operator_and_compiler_on_this_machine(self, small: Experiment) -> None:
        found = [file.relative_to(small.folder).as_posix() for file in jobs(small, ["ab12"])["breakdown"]]
        assert found == [f"breakdown/{key}/eager-cpu.json" for key in ("separable_conv2d", "ab12")]
        without = small.model_copy(update={"tune": small.tune.model_copy(update={"breakdown": False})})
        assert "breakdown" not in jobs(without, ["ab12"]) and "breakdown" not in names(without)
        assert without.part("tune") == small.part("tune")

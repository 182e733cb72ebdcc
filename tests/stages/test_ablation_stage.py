"""The stage of ablations: settings, tables, records, figures and the part of the page; interrupted and continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small_specs

from syno.base.errors import SpecError
from syno.paper.ablations.canonical import Rate, canonical_rates
from syno.paper.ablations.drawing import draw
from syno.paper.ablations.guided import is_lost, losses
from syno.paper.ablations.parts import Parts
from syno.paper.ablations.tables import canonical_rows, distance_rows
from syno.paper.experiments import AblatedExperiment, PublishedData
from syno.paper.stages.ablations import AblationRecord, draw_ablation, page_parts, read_ablation, run_ablation
from syno.space import Space
from syno.stages import figures
from syno.stages.search import search
from syno.stages.study import freeze
from syno.stages.workflow_stages import STAGES

OWN = "rules_of_mine:no_split"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "small.yaml").write_text(small_specs.convolution(depth=3).dump(), encoding="utf-8")
    (tmp_path / "rules_of_mine.py").write_text(
        "from syno.space.rules import Rule\nno_split = Rule('no-split', 'Split', 'a', 'b', lambda step: True)\n",
        encoding="utf-8",
    )


def experiment(ablations: Any) -> AblatedExperiment:
    return AblatedExperiment(
        name="tiny",
        spec="small.yaml",
        evaluate="cost",
        original={"flops": 2e6, "parameters": 1e5},
        policy={"name": "random"},
        study={"n_trials": 2},
        select={"by": "reward"},
        ablations=ablations,
    )


def test_names_take_the_defaults() -> None:
    assert experiment(["canonical", "patterns"]).ablations == experiment({"canonical": {}, "patterns": {}}).ablations
    assert experiment({}).ablations.names == ()
    with pytest.raises(SpecError, match="guided"):
        experiment(["guided"])
    with pytest.raises(SpecError, match='ablation but "patterns"'):
        PublishedData(name="published", artifact="data", ablations=["distance"])
    assert PublishedData(name="published", artifact="data", ablations=["patterns"]).ablations.names == ("patterns",)


def test_a_search_does_not_depend_on_them() -> None:
    assert experiment({}).part("search") == experiment(["canonical"]).part("search")


def test_the_jobs_are_those_that_are_named() -> None:
    given = experiment(["canonical", "distance"])
    assert [file.name for file in STAGES["ablate"].paths(given)] == ["ablation-canonical.parquet", "ablation-distance.parquet"]
    assert set(figures.names(given)) >= {"ablation-canonical", "ablation-distance"}


@pytest.mark.slow
def test_all_three_are_measured_drawn_and_on_the_page() -> None:
    given = experiment({
        "canonical": {"samples": 3, "complete": 2, "rules": [OWN]},
        "distance": {"trials": 3, "complete": 2},
        "patterns": {"random": 3},
    })  # fmt: skip
    search(given, 1)
    freeze(given)
    for name in given.ablations.names:
        record = run_ablation(given, name)
        rows, read = read_ablation(given.folder, name)
        assert read == record and len(rows) == record.rows and record.space == "tiny"
        assert not (given.folder / "ablations" / name).exists()
    canonical, _ = read_ablation(given.folder, "canonical")
    variants = {row["variant"] for row in canonical if row["origin"] != "paper"}
    assert variants == {"all rules", "exact rules", "order drawn", "built-in rules", "complete"}
    assert [row["sampled"] for row in canonical if row["origin"] == "paper" and row["sampled"]] == [6452]
    distance, _ = read_ablation(given.folder, "distance")
    printed = [row["distance"] for row in distance if row["origin"] == "paper"]
    assert [row["distance"] for row in distance] == ["exact", "paper", "published", "none", *printed]
    assert printed == ["paper", "none"]
    assert [part.title for part in page_parts(given.folder)] == ["Canonical graphs", "Shape distances", "Common patterns"]
    page = figures.write_report(given).read_text(encoding="utf-8")
    assert 'id="ablation-patterns"' in page and "operators: of 2 complete trials" in page


def test_patterns_need_operators() -> None:
    with pytest.raises(SpecError, match="has no operators yet"):
        run_ablation(experiment(["patterns"]), "patterns")
    with pytest.raises(SpecError, match="there are: canonical, distance, patterns"):
        run_ablation(experiment([]), "guided")


def test_counts_of_an_interrupted_run_are_those_of_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.paper.ablations.canonical.CHUNK", 4)
    spec, parts, walked = small_specs.convolution(depth=3), Parts(tmp_path / "parts", "key"), list[int]()

    def interrupted(title: str, finished: int, total: int) -> None:
        if finished == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        canonical_rates(spec, 10, parts=parts, show=interrupted)
    continued = canonical_rates(spec, 10, parts=parts, show=lambda _, finished, __: walked.append(finished))
    assert min(walked) == 4 and continued == canonical_rates(spec, 10)
    assert Parts(tmp_path / "parts", "other").peek("graphs-4-of-10") is None


def test_own_rules_beside_the_built_in_ones() -> None:
    spec = small_specs.convolution(depth=4)
    own, without = canonical_rates(spec.with_(rules_on=(OWN,)), 40), canonical_rates(spec, 40)
    assert [rate.built_in for rate in own] == [rate.canonical for rate in without]
    assert sum(rate.canonical for rate in own) < sum(rate.built_in for rate in own)


def test_sizes_and_their_sums_stand_beside_the_papers() -> None:
    """Table 3 has graphs of 2 to 7 primitives, and those of 8 or more in one."""
    rates = [Rate(1, 10, 10), Rate(2, 10, 5), Rate(7, 100, 1), Rate(8, 30, 1), Rate(9, 10, 0)]
    rows = [row for row in canonical_rows(small_specs.convolution(), rates, [], 0, 1.5) if "all rules" in str(row["variant"])]
    own, paper = ([row for row in rows if row["origin"] == origin] for origin in ("measured", "paper"))
    assert [(row["primitives"], row["rate"], row["paper_rate"]) for row in own] == [
        (1, 1.0, None), (2, 0.5, 1.0), (7, 0.01, 0.0008), (8, 1 / 30, None), (9, 0.0, None), (None, 1 / 40, 0.0),
        (None, 17 / 160, 86 / 6452),
    ]  # fmt: skip
    assert [row["variant"] for row in own[-2:]] == ["all rules, 8 or more", "all rules"] and own[-1]["seconds"] == 1.5
    assert [(row["primitives"], row["rate"]) for row in paper] == [
        (None, 86 / 6452), (2, 1.0), (3, 0.1818), (4, 0.1397), (5, 0.044), (6, 0.0122), (7, 0.0008), (None, 0.0),
    ]  # fmt: skip
    (axes,) = draw("canonical", rows, []).axes
    (points,) = [line for line in axes.lines if "Table 3" in str(line.get_label())]
    assert list(points.get_xdata()) == [2, 3, 4, 5, 6, 7] and list(points.get_ydata())[1] == 0.1818


def test_walks_stand_beside_the_papers_with_the_cpu_time_of_all_its_cores() -> None:
    with_it, without = distance_rows(small_specs.convolution(), [], [], [], 0)
    assert (with_it["operators"], with_it["walks"], with_it["seconds"]) == (253, 5_000_000, 13119.36)
    assert (without["operators"], without["walks"], without["per_second"]) == (0, 500_000_000, 0)


def test_losses_are_counted_at_the_depth_limit() -> None:
    spec = small_specs.two_ended()
    assert [(one.primitives, one.operators, one.lost) for one in losses(spec, "published", 2)] == [(2, 1, 1)]
    assert [one.lost for one in losses(spec, "paper", 2)] == [0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "deeper"),
    [(small_specs.matmul, 1), (small_specs.convolution, 1), (small_specs.strided, 1), (small_specs.repeated, 0)],
)
def test_what_is_lost_is_what_an_enumeration_lacks(make: Any, deeper: int) -> None:
    spec = make(depth=make().depth + deeper)
    whole = {operator.id: operator for _, operator in Space(spec, use_distance=False).enumerate()}
    for kind in ("paper", "published"):
        space = Space(spec.with_(distance=kind))
        lacking = set(whole) - {operator.id for _, operator in space.enumerate()}
        assert lacking == {id_ for id_, operator in whole.items() if is_lost(space, operator)}


def test_a_record_of_earlier_numbers_stays(tmp_path: Path) -> None:
    given = experiment({"canonical": {"samples": 3, "complete": 0}})
    run_ablation(given, "canonical")
    file = given.folder / "ablations" / "canonical.json"
    before = file.read_bytes()
    run_ablation(given, "canonical")
    assert file.read_bytes() == before
    assert AblationRecord.read(file).settings["samples"] == 3


def test_a_figure_is_drawn_in_the_formats_that_are_asked_for() -> None:
    given = experiment({"canonical": {"samples": 3, "complete": 0}})
    run_ablation(given, "canonical")
    assert [file.name for file in draw_ablation(given.folder, "ablation-canonical", ("svg",))] == ["ablation-canonical.svg"]

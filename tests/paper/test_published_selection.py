"""Published operators are taken by an experiment: which, in what order, and what is said where there are none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_artifact import drawing, write_artifact
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment, load_experiments
from syno.ir.library import OPERATORS
from syno.paper.experiments import PublishedData
from syno.paper.figures.catalogue import PAPER_FIGURES
from syno.paper.stages.artifact import import_artifact
from syno.stages.figures import names
from syno.stages.select import select
from syno.stages.selection import read_selected, read_selection, why_none
from syno.stages.source import choose_from_source
from syno.stages.store import OperatorStore

pytestmark = pytest.mark.slow  # the figures and tables of the whole published artifact


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An import with the graphs of "good" and "better" of the ResNets, and of DenseNet's operator. Not to be changed."""
    around = tmp_path_factory.mktemp("published")
    data = write_artifact(around / "data") / "vision"
    for machine in ("mdev", "a100"):
        drawing(data / machine / "good-kernels-cifar100/resnet/07801_17801", OPERATORS["operator_2"]())
        drawing(data / machine / "good-kernels-cifar100/densenet121/07800_123456", OPERATORS["stacked_convolution"]())
    import_artifact(data.parent, around / "out")
    return around / "out"


@pytest.fixture
def source(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(whole, tmp_path / "imported"))


def taking(model: str, **settings: Any) -> Experiment:
    workload = {"model": model, "data_settings": {"train": 64, "test": 32}}
    return Experiment(name="again", workload=workload, select={"source": "imported", "count": 5, **settings})


def test_the_best_come_first_and_are_in_the_store_then(source: Path) -> None:
    chosen = select(taking("resnet18"))
    assert [(one.name, one.metrics["accuracy"]) for one in chosen] == [("operator_1", 0.799), ("operator_2", 0.785)]
    assert {one.trial for one in chosen} == {None}
    assert read_selected(Path("results/again/selected.json")) == chosen
    store = OperatorStore(Path("results/again"))
    assert [store.get(one.key).id for one in chosen] == [OPERATORS[one.name]().id for one in chosen]


def test_resnet34_has_those_of_resnet18_and_is_compared_with_its_own_accuracy(source: Path) -> None:
    """0.785 is within 0.01 of ResNet-18's 0.78836, and not of ResNet-34's 0.79778."""
    assert len(choose_from_source(taking("resnet18", within=0.01))) == 2
    assert [one.name for one in select(taking("resnet34", within=0.01))] == ["operator_1"]


def test_another_network_has_its_own(source: Path) -> None:
    (one,) = select(taking("densenet121"))
    assert one.name not in ("operator_1", "operator_2")


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("resnext29_2x64d", {}, "published with its graph for resnext29_2x64d: imported has some for resnet18, dens"),
        ("resnet8", {}, "no operator was published with its graph for resnet8"),
    ],
)
def test_where_there_is_none_it_says_so(model: str, settings: dict[str, Any], message: str, source: Path) -> None:
    with pytest.raises(SpecError, match=message):
        select(taking(model, **settings))


def test_a_selection_of_no_operator_is_a_result(source: Path) -> None:
    experiment = taking("densenet121", within=0.0)
    assert select(experiment) == []
    reason = str(why_none(read_selection(experiment.folder / "selected.json")))
    assert "densenet121's accuracy there is 0.8031, the best operator's is 0.8000" in reason


def test_the_command_tells_what_was_taken(source: Path, tmp_path: Path) -> None:
    (tmp_path / "again.yaml").write_text(
        "workload: {model: resnet18, data_settings: {train: 64, test: 32}}\nselect: {source: imported, count: 1}\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(app, ["select", "again.yaml"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("operator_1 (") and "operator_2" not in result.stdout
    assert result.stdout.rstrip().endswith("published, accuracy 0.7990 in the search")


class TestConfig:
    def test_published_data_is_no_search(self) -> None:
        experiment = PublishedData(name="published", artifact="data")
        assert not experiment.searches
        assert names(experiment) == tuple(PAPER_FIGURES) and "figure-5" in PAPER_FIGURES
        with pytest.raises(SpecError, match="of published data"):
            experiment.storage  # noqa: B018

    @pytest.mark.parametrize("more", [{"workload": {"model": "resnet8"}}, {"study": {"n_trials": 3}}, {"evaluate": "cost"}])
    def test_an_import_has_no_other_settings(self, more: dict[str, Any]) -> None:
        with pytest.raises(SpecError, match=rf"has no {next(iter(more))}; .* select: {{source: published}}"):
            PublishedData(name="published", artifact="data", **more)

    def test_common_settings_are_not_for_an_import(self) -> None:
        found = load_experiments({
            "name": "group", "common": {"workload": {"model": "resnet18"}},
            "experiments": {"published": {"artifact": "data"}, "again": {"select": {"source": "published"}}},
        })  # fmt: skip
        assert isinstance(found["published"], PublishedData) and found["again"].workload is not None
        assert found["again"].select.source == found["published"].folder == Path("results/group/published")

    def test_what_trials_depend_on_is_what_it_was(self) -> None:
        """Or studies that were made before there was this option would be searched again."""
        assert "artifact" not in Experiment(name="a", workload={"model": "resnet8"}).part("search")

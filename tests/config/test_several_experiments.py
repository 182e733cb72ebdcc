"""Files with several experiments: what each of them is, and what is said when one is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.cli.arguments import experiment_of
from syno.config import Experiment, load_experiment, load_experiments
from syno.stages.opening import keep_config
from syno.stages.store import OperatorStore, find_stored
from syno.stages.top import find_experiment

PAPER = Path(__file__).parents[2] / "config" / "paper.yaml"
GROUP: Mapping[str, Any] = {
    "name": "group",
    "common": {
        "workload": {"width": 0.25, "training": {"epochs": 1, "batch": 32}},
        "reward": {"name": "accuracy", "low": 0.0},
        "train": {"seeds": [1, 2]},
    },
    "experiments": {
        "first": {"workload": {"training": {"epochs": 2}}, "train": {"seeds": [5]}},
        "second": {"select": {"source": "first", "within": 0.01}},
        "third": {"select": {"source": "results/elsewhere"}, "output": "mine/third"},
    },
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("several.yaml").write_text(yaml.safe_dump(GROUP), encoding="utf-8")
    return Path("several.yaml")


def with_experiments(**experiments: Any) -> dict[str, Any]:
    return {"name": "group", "common": GROUP["common"], "experiments": experiments}


class TestWhatEachIs:
    def test_what_is_common_is_merged_level_by_level(self, file: Path) -> None:
        first, second, _ = load_experiments(file).values()
        assert first.workload is not None and second.workload is not None
        assert (first.workload.width, first.workload.training.epochs, first.workload.training.batch) == (0.25, 2, 32)
        assert (second.workload.training.epochs, second.workload.training.batch) == (1, 32)
        assert (first.train.seeds, second.train.seeds) == ((5,), (1, 2))  # lists are replaced

    def test_results_are_in_a_folder_of_the_group(self, file: Path) -> None:
        found = load_experiments(file)
        assert [str(one.folder) for one in found.values()] == ["results/group/first", "results/group/second", "mine/third"]
        assert list(found) == [one.name for one in found.values()] == ["first", "second", "third"]

    def test_the_group_has_the_name_of_its_file_if_none_is_given(self, file: Path) -> None:
        file.write_text(yaml.safe_dump({key: value for key, value in GROUP.items() if key != "name"}), encoding="utf-8")
        assert str(load_experiments(file)["first"].folder) == "results/several/first"

    def test_a_source_is_the_folder_of_the_one_that_is_named_or_any_other(self, file: Path) -> None:
        first, second, third = load_experiments(file).values()
        assert (first.searches, second.searches, third.searches) == (True, False, False)
        assert second.select.source == first.folder
        assert third.select.source == Path("results/elsewhere")

    def test_what_is_kept_beside_the_results_needs_no_other(self, file: Path) -> None:
        for experiment in load_experiments(file).values():
            assert Experiment.load(keep_config(experiment)) == experiment

    def test_a_file_with_one_is_as_it_was(self, tmp_path: Path) -> None:
        single = tmp_path / "single.yaml"
        single.write_text(yaml.safe_dump({**GROUP["common"], "study": {"n_trials": 3}}), encoding="utf-8")
        (found,) = load_experiments(single).values()
        assert found == Experiment.load(single) == load_experiment(single)
        assert str(found.folder) == "results/single"

    def test_the_paper_is_read_without_data_and_without_torch(self) -> None:
        found = load_experiments(PAPER)
        searched = {name for name, one in found.items() if one.searches}
        assert searched == {"resnet18", "densenet121", "resnext29_2x64d", "efficientnet_v2_s", "gpt2"}
        assert {one.select.within for name, one in found.items() if name.startswith("imagenet-")} == {0.016}
        assert all(one.tune.latency.batch == 1 for one in found.values() if isinstance(one, Experiment))


class TestWhichIsMeant:
    def test_commands_take_the_file_and_a_name(self, file: Path) -> None:
        assert experiment_of(f"{file}:second").folder == Path("results/group/second")
        assert find_experiment(f"{file}:third").folder == Path("mine/third")

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                "several.yaml",
                "several.yaml has several experiments; name one, as in several.yaml:first; .*: first, second, third",
            ),
            ("several.yaml:secnd", 'no experiment "secnd"; there are: first, second, third. Did you mean "second"'),
            ("several.yaml:", 'no experiment ""'),
            ("other.yaml:first", "^other.yaml is no file; Syno brings the experiments .*, quickstart, "),
        ],
    )
    def test_what_names_none_is_an_error_with_the_names(self, given: str, message: str, file: Path) -> None:
        with pytest.raises(SpecError, match=message):
            experiment_of(given)
        result = CliRunner().invoke(app, ["select", given])
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)

    def test_results_of_a_group_are_found_by_name(self, file: Path) -> None:
        from syno.ir.library import OPERATORS

        first = load_experiment(f"{file}:first")
        keep_config(first)
        key = OperatorStore(first.folder).add(OPERATORS["conv1x1"]().renamed("first_3"))
        assert find_stored("first_3").id.startswith(key)
        assert find_experiment("group/first").name == "first"
        with pytest.raises(SpecError, match="experiments in results/ are: group/first"):
            find_experiment("group/frist")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_experiments(a={"study": {"n_trails": 2}}), 'experiment "a": study.n_trails.* Did you mean "n_trials"'),
        (with_experiments(a={}, b={"name": "c"}), 'experiment "b": name: it is "b" already'),
        (with_experiments(a={}, b=[1]), "experiments.b: .*given: \\[1\\]"),
        (with_experiments(), "experiments: there is none"),
        (with_experiments(**{"a:b": {}}), "experiments: an experiment's name is 'a:b'"),
        (with_experiments(**{"..": {}}), "experiments: an experiment's name is '\\.\\.'"),
        ({**with_experiments(a={}), "name": "a/b"}, "name: the name of a group of experiments is 'a/b'"),
        ({**with_experiments(a={}), "workload": {}}, "workload: there is no such option; there are: name, common, experiments"),
        ({**with_experiments(a={}), "comon": {}}, 'Did you mean "common"'),
        (with_experiments(a={"output": "x"}, b={"output": "x"}), 'experiment "b": its results go to x, as those of "a" do'),
        (with_experiments(a={"output": ["x"]}), 'experiment "a": output: '),
        (with_experiments(a={"select": 3}), 'experiment "a": select: '),
        (with_experiments(a={"select": {"source": ["b"]}}), 'experiment "a": select.source: '),
        (with_experiments(a={"select": {"within": 0.1}, "evaluate": "cost"}), 'experiment "a": select: within .* leave it out'),
        (with_experiments(a={"select": {"source": "a"}}), 'experiment "a": select: source leads back to itself'),
        (
            with_experiments(first={}, again={"select": {"source": "frist"}}),
            'experiment "again": select: source: .* nor a folder is called "frist". Did you mean "first"',
        ),
        (
            with_experiments(z={"select": {"source": "b"}}, b={"select": {"source": "c"}}, c={"select": {"source": "b"}}),
            'experiment "b": .*: results/group/b takes from results/group/c takes from results/group/b',
        ),
        (
            with_experiments(a={"select": {"source": "results/group/b"}}, b={"select": {"source": "a"}}),
            'experiment "a": select: source leads back to itself',
        ),
        (
            {"experiments": {"a": {"spec": "resnet18", "select": {"source": "x"}}}, "name": "g"},
            'experiment "a": select: source needs a workload',
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_experiment(content: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_experiments(content)


def test_one_that_is_waiting_for_its_own_results_is_wrong() -> None:
    with pytest.raises(SpecError, match="leads back to itself"):
        load_experiments({**GROUP["common"], "select": {"source": "results/x"}}, "x")


@pytest.mark.parametrize("command", ["search", "worker", "freeze"])
def test_what_has_a_source_is_not_searched(command: str, file: Path) -> None:
    result = CliRunner().invoke(app, [command, f"{file}:second"])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert 'experiment "second" takes the operators that results/group/first selected' in line and "`syno select`" in line
    assert not Path("results").exists()

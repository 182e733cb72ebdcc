"""A folder of results that is looked over: what is made again, written again or named, without Snakemake."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from syno.base.errors import SpecError, UnknownNameError
from syno.base.files import write_whole
from syno.config import Experiment
from syno.stages.figures import draw, write_report
from syno.stages.opening import keep_config
from syno.stages.operators import network_of
from syno.stages.restore import FILE, Manifest, deleted, derived_files, look_over, write_manifest
from syno.stages.search import work
from syno.stages.select import select
from syno.stages.study import freeze
from syno.stages.workflow_stages import jobs

COUNTED = {
    "name": "counted",
    "spec": {"preset": "resnet18", "depth": 4},
    "evaluate": "cost",
    "original": {"flops": 2.3e11, "parameters": 1.1e7},
    "study": {"n_trials": 3},
    "select": {"by": "reward", "count": 1},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment that has ended, with its manifest. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        experiment = Experiment(**COUNTED)
        work(experiment, 1)
        freeze(experiment)
        select(experiment)
        for file in derived_files(experiment):  # only their checksums matter
            write_whole(file, f"drawn of the trials: {file}")
        write_manifest(experiment, complete=True)
    return folder


@pytest.fixture
def experiment(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Experiment(**COUNTED)


def names(files: list[Path]) -> list[str]:
    return sorted(str(file.relative_to("results/counted")) for file in files)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x80
    file.write_bytes(content)


def test_nothing_is_to_be_done_where_nothing_changed(experiment: Experiment) -> None:
    before = {file: file.read_bytes() for file in Path("results").rglob("*") if file.is_file()}
    assert look_over(experiment, change=True) == []
    assert {file: file.read_bytes() for file in Path("results").rglob("*") if file.is_file()} == before


def test_every_deleted_file_is_missed(experiment: Experiment) -> None:
    write_whole(experiment.folder / "search" / "worker1.json", "{}")
    missing = names(list(deleted(experiment)))
    files = {file for files in jobs(experiment, [], []).values() for file in files} | set(derived_files(experiment))
    for file in sorted(file for file in files if file.exists()):
        file.rename("kept")
        assert names(list(deleted(experiment))) == sorted([*missing, str(file.relative_to(experiment.folder))])
        Path("kept").rename(file)


@pytest.mark.parametrize("name", ["figures/reward.png", "figures/reward.pdf", "report.html", "trials.parquet"])
def test_what_jobs_of_seconds_make_is_made_again(name: str, experiment: Experiment) -> None:
    flip(experiment.folder / name)
    assert names(look_over(experiment, change=True)) == [name]


def test_operators_are_written_from_the_frozen_table(experiment: Experiment) -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in (experiment.folder / "operators").iterdir()}
    gone, damaged, _ = texts
    gone.unlink()
    flip(damaged)
    assert look_over(experiment, change=False) == [] and not gone.exists()  # a dry run writes nothing
    assert look_over(experiment, change=True) == []
    assert {file: file.read_text(encoding="utf-8") for file in texts} == texts


@pytest.mark.parametrize("known", [True, False], ids=["manifest", "no manifest"])
def test_operators_that_are_all_gone_are_written_with_and_without_a_manifest(known: bool, experiment: Experiment) -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in (experiment.folder / "operators").iterdir()}
    shutil.rmtree(experiment.folder / "operators")
    if not known:
        (experiment.folder / "manifest.json").unlink()
    drawn = {f"figures/{name}.{kind}" for name in ("reward", "search-time") for kind in ("svg", "png", "pdf")}
    assert set(names(look_over(experiment, change=True))) <= drawn | {"report.html"}
    assert {file: file.read_text(encoding="utf-8") for file in texts} == texts


def test_a_command_finds_an_operator_that_the_store_has_lost(experiment: Experiment) -> None:
    file = next((experiment.folder / "operators").iterdir())
    text = file.read_text(encoding="utf-8")
    file.unlink()
    assert text.startswith(str(network_of(experiment, file.stem).replacement))
    assert file.read_text(encoding="utf-8") == text


def test_an_operator_that_is_nowhere_is_named_with_the_command(experiment: Experiment) -> None:
    with pytest.raises(UnknownNameError, match='"0123456789ab".*`syno freeze` writes the operators of a study there'):
        network_of(experiment, "0123456789ab")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "search/worker1.json",
            "search/worker1.json holds no worker record: .*`syno worker`.* `snakemake` makes",
        ),
        ("selected.json", "selected.json holds no selection: .*delete it and run `syno select` again"),
    ],
)
def test_records_are_named_and_stay(name: str, message: str, experiment: Experiment) -> None:
    flip(experiment.folder / name)
    damaged = (experiment.folder / name).read_bytes()
    with pytest.raises(SpecError, match=message):
        look_over(experiment, change=True)
    assert (experiment.folder / name).read_bytes() == damaged


def test_a_frozen_table_without_its_study_is_never_replaced(experiment: Experiment) -> None:
    (experiment.folder / "trials.db").unlink()
    flip(experiment.folder / "trials.parquet")
    with pytest.raises(SpecError, match="trials.parquet is damaged, and the study that it was made of, .*trials.db, is not"):
        look_over(experiment, change=True)


def test_a_search_that_is_lost_is_done_again(experiment: Experiment) -> None:
    for name in ("trials.db", "trials.parquet"):
        (experiment.folder / name).unlink()
    assert names(look_over(experiment, change=True)) == ["search/worker1.json"]


def test_times_are_those_of_then(experiment: Experiment) -> None:
    files = [file for file in experiment.folder.rglob("*") if file.suffix in (".json", ".parquet", ".svg", ".html")]
    files = [file for file in files if file.name != "manifest.json"]
    times = {file: file.stat().st_mtime_ns for file in files}
    for age, file in enumerate(files):
        os.utime(file, (1_700_000_000 + age, 1_700_000_000 + age))
    assert look_over(experiment, change=False) == []
    assert {file: file.stat().st_mtime_ns for file in files} == times


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_the_settings_beside_results_are_written_again(how: str, experiment: Experiment) -> None:
    file = experiment.folder / "experiment.yaml"
    before = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(before.replace(b"depth: 4", b"depth: 5"))  # it looks like other settings
    assert look_over(experiment, change=True) == []
    assert file.read_bytes() == before


class TestOtherSettings:
    @pytest.fixture
    def other(self, experiment: Experiment) -> Experiment:
        return Experiment(**{**COUNTED, "spec": {"preset": "resnet18", "depth": 5}})

    def test_they_are_refused_and_those_of_the_results_stay(self, other: Experiment) -> None:
        before = (other.folder / "experiment.yaml").read_bytes()
        for refuses in (keep_config, lambda one: look_over(one, change=True)):
            with pytest.raises(SpecError, match=r"holds trials of other settings.*: spec\.depth is 4 there, 5 here"):
                refuses(other)
        assert (other.folder / "experiment.yaml").read_bytes() == before

    def test_they_are_refused_without_a_manifest_and_settings_too(self, other: Experiment) -> None:
        """The study has its own. What would be written beside it must not say otherwise."""
        for name in ("manifest.json", "experiment.yaml"):
            (other.folder / name).unlink()
        with pytest.raises(SpecError, match=r"has other settings: spec\.depth is 4 there, 5 here"):
            keep_config(other)
        assert not (other.folder / "experiment.yaml").exists()

    def test_results_are_not_shown_under_them(self, other: Experiment) -> None:
        for shows in (write_report, lambda one: draw(one, "reward")):
            with pytest.raises(SpecError, match=r"are of other settings.*: spec\.depth is 4 there, 5 here"):
                shows(other)

    def test_what_means_the_same_is_no_difference(self, experiment: Experiment) -> None:
        policy = {"name": "mcts", **experiment.policy_settings.model_dump(mode="json")}
        same = Experiment(**{**COUNTED, "policy": policy, "evaluate": ""})
        assert names(look_over(same, change=True)) == ["search/worker1.json"]  # it will find that it has all its trials
        assert Experiment.load(keep_config(same)).policy == policy

    def test_a_study_goes_on_with_more_trials(self, experiment: Experiment) -> None:
        more = Experiment(**{**COUNTED, "study": {"n_trials": 4}})
        assert names(look_over(more, change=True)) == ["search/worker1.json"]

    def test_a_folder_of_a_version_with_pruners_goes_on(self, experiment: Experiment) -> None:
        kept = experiment.folder / "experiment.yaml"
        kept.write_text(kept.read_text(encoding="utf-8").replace("study:\n", "study:\n  pruner: null\n"), encoding="utf-8")
        write_manifest(experiment, complete=True)
        manifest, part = Manifest.read(experiment.folder / FILE), json.loads(experiment.part("search"))
        part["study"]["pruner"] = None  # which the settings of a search had then
        then = hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]
        assert manifest.files["search/worker1.json"].settings == then
        assert look_over(experiment, change=True) == []
        keep_config(experiment)
        assert "pruner" not in kept.read_text(encoding="utf-8")

    def test_a_folder_of_a_search_with_a_pruner_says_what_to_do(self, experiment: Experiment) -> None:
        kept = experiment.folder / "experiment.yaml"
        text = kept.read_text(encoding="utf-8").replace("study:\n", "study:\n  pruner: {name: median}\n")
        kept.write_text(text, encoding="utf-8")
        for refuses in (keep_config, write_report):
            with pytest.raises(SpecError, match="has settings that .* does not have: .*study: there is no pruner.*Take them"):
                refuses(experiment)
        assert kept.read_text(encoding="utf-8") == text

    def test_another_experiment_needs_another_folder(self, experiment: Experiment) -> None:
        other = Experiment(**{**COUNTED, "name": "other", "output": experiment.folder})
        with pytest.raises(SpecError, match='holds results of the experiment "counted".*give "other" another folder'):
            keep_config(other)

"""The folder of a user's own modules: found beside the experiment's file, kept beside its results, or given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from syno.base import registry
from syno.base.errors import RunsCodeError, SpecError
from syno.base.registry import imported, reading_only, search_code_in
from syno.config.files import load_experiment, load_experiments
from syno.stages.provenance import write_kept

OWN = {"workload": {"model": "nets.small:make"}, "output": "out"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; what is put on the import path is taken off again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_CODE_FOLDERS", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def written(file: str, fields: dict[str, Any]) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(fields), encoding="utf-8")
    return path


def test_it_is_that_of_the_file_if_a_module_lies_there() -> None:
    file = written("mine/own.yaml", OWN)
    assert load_experiment(file).code is None
    (file.parent / "nets").mkdir()
    assert load_experiment(file).code == Path("mine")


@pytest.mark.parametrize("module", ["nets.py", "nets/small.py"])
def test_modules_and_packages(module: str) -> None:
    written(f"mine/{module}", {})
    assert load_experiment(written("mine/own.yaml", OWN)).code == Path("mine")


def test_files_that_name_no_module_have_none() -> None:
    written("mine/nets.py", {})
    assert load_experiment(written("mine/own.yaml", {"workload": {"model": "resnet8"}})).code is None


def test_one_of_several_rules_is_enough() -> None:
    written("mine/rules.py", {})
    layers = {"workload": {"model": "resnet8", "layers": "spatial, rules:mine"}}
    assert load_experiment(written("mine/own.yaml", layers)).code == Path("mine")


def test_several_experiments_have_it_in_common() -> None:
    written("mine/nets.py", {})
    file = written("mine/own.yaml", {"experiments": {"one": {"workload": OWN["workload"]}, "two": {**OWN, "code": "other"}}})
    found = load_experiments(file)
    assert (found["one"].code, found["two"].code) == (Path("mine"), Path("other"))


def test_results_name_it() -> None:
    written("mine/nets.py", {})
    kept = write_kept(load_experiment(written("mine/own.yaml", OWN)))
    assert kept == Path("out/experiment.yaml") and load_experiment("out").code == Path("mine")


def test_no_result_depends_on_it() -> None:
    """So results stay valid where the folder has moved."""
    one, other = (load_experiment(written("own.yaml", {**OWN, "code": code})) for code in ("here", "there"))
    assert one.code != other.code and one.parts() == other.parts() and "search" in one.parts()


def test_a_module_is_taken_from_the_folder_that_was_given_last(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "same_name_in_both.py").write_text(f"NAME = {name!r}\n")
    for name in ("one", "two", "one"):
        search_code_in(folder / name)
        assert imported("same_name_in_both:NAME", "thing") == name
        assert sys.path[0] == str(folder / name)  # for the processes that measure


def test_reading_an_experiment_imports_nothing_and_running_it_does(folder: Path) -> None:
    marker = folder / "it_ran"
    written("mine/at_import.py", {}).write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\nReward = 3\n")
    read = load_experiment(
        written("mine/own.yaml", {"evaluate": "cost", "spec": "resnet18", "reward": {"name": "at_import:Reward"}})
    )
    assert not marker.exists() and sys.path[0] != str(folder / "mine")
    with pytest.raises(SpecError, match='experiment "own": the reward is "at_import:Reward", which is 3; it must be'):
        read.use_code()
    assert marker.exists() and sys.path[0] == str(folder / "mine")


@pytest.mark.parametrize("given", ["at_import:", ":Reward", "at import:Reward", "at_import:Reward:more", "../at_import:Reward"])
def test_the_form_of_a_path_is_checked_when_it_is_read(given: str) -> None:
    with pytest.raises(SpecError, match='the reward is ".*"; it must be something that can be imported'):
        load_experiment(written("own.yaml", {"evaluate": "cost", "spec": "resnet18", "reward": {"name": given}}))


def test_what_only_reads_imports_nothing(folder: Path) -> None:
    (folder / "imported_by_none.py").write_text("THING = 1\n")
    with reading_only("this test"), pytest.raises(RunsCodeError, match='"imported_by_none:THING".*; this test only reads'):
        search_code_in(folder / "mine")
        imported("imported_by_none:THING", "thing")
    assert str(folder / "mine") not in sys.path and imported("imported_by_none:THING", "thing") == 1

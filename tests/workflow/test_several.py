"""Several experiments in one workflow, of which one takes the operators of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_run import COUNTED, FIELDS, MOST_SECONDS, ROOT, merged, planned, snakemake, started, write_config

from syno.config import Experiment
from syno.stages.data import DataRecord
from syno.stages.selection import read_selected
from syno.train.training_record import TrainingRecord

QUICK = merged(FIELDS, {"tune": {"compilers": []}})
COMMON = {key: value for key, value in QUICK.items() if key not in ("name", "output")}
GROUP: Mapping[str, Any] = {
    "common": COMMON,
    "experiments": {
        "searched": {"select": {"count": 2}},
        "taking": {"workload": {"training": {"epochs": 2}}, "select": {"source": "searched"}, "train": {"seeds": [4]}},
    },
}


def write(folder: Path, content: Mapping[str, Any]) -> Path:
    file = folder / "group.yaml"
    file.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
    return file


AFTER = {"after": "searched", "workload": {"layers": "stem"}, "select": {"operators": ["conv2d"]}, "train": {"seeds": [4]}}


@pytest.mark.slow
def test_experiments_take_the_operators_of_another_and_go_on_from_it(tmp_path: Path) -> None:
    group = merged(GROUP, {"experiments": {"next": AFTER}})
    config = write(tmp_path, group)
    results = tmp_path / "results" / "group"
    dry = planned(tmp_path, config, "next")
    assert dry["worker"] == 1 and dry["data"] == 2  # the search goes first
    done = snakemake(tmp_path, config, "taking", "next")
    assert done.returncode == 0, done.stdout

    assert (results / "taking" / "report.html").is_file() and not (results / "searched" / "report.html").exists()
    assert not (results / "taking" / "trials.db").exists() and not (results / "taking" / "trials.parquet").exists()
    assert Experiment.load(results / "taking" / "experiment.yaml").select.source == Path("results/group/searched")
    (best,) = read_selected(results / "taking" / "selected.json")  # one of two
    found = {one.key: one.name for one in read_selected(results / "searched" / "selected.json")}
    assert best.key in found and (results / "taking" / "train" / best.key / "seed4.json").is_file()
    worse = merged(group, {"experiments": {"taking": {"select": {"within": 1.0}}}})
    assert planned(tmp_path, write(tmp_path, worse), "taking") == {"select": 1, "tables": 1, "figure": 2, "report": 1}
    longer = merged(group, {"experiments": {"taking": {"workload": {"training": {"epochs": 3}}}}})
    jobs = planned(tmp_path, write(tmp_path, longer), "taking")
    assert jobs == {"data": 1, "train": 2, "tables": 1, "figure": 2, "report": 1}

    assert set(DataRecord.read(results / "next" / "data.json").placed.values()) < {*found.values()}
    (record, _) = (TrainingRecord.read(file) for file in results.glob("next/train/*/seed4.json"))
    (placed,) = record.workload.placed
    assert placed.replacement.name in found.values() and placed.layers == "spatial"
    assert planned(tmp_path, write(tmp_path, group)) == {"figure": 4, "report": 1}  # of the first; none is trained again
    named = {**AFTER, "after": {"source": "searched", "operator": placed.replacement.name}}
    assert planned(tmp_path, write(tmp_path, merged(GROUP, {"experiments": {"next": named}})), "next") == {}


def test_experiments_that_wait_for_each_other_are_one_message(tmp_path: Path) -> None:
    circle = merged(GROUP, {"experiments": {"searched": {"select": {"source": "taking"}}}})
    done = snakemake(tmp_path, write(tmp_path, circle), "--dry-run")
    assert done.returncode != 0 and "Traceback" not in done.stdout
    assert 'error: experiment "searched": select: source leads back to itself: ' in done.stdout


def test_a_source_outside_the_file_has_to_be_there(tmp_path: Path) -> None:
    elsewhere = merged(GROUP, {"experiments": {"taking": {"select": {"source": "results/nowhere"}}}})
    done = snakemake(tmp_path, write(tmp_path, elsewhere), "--dry-run", "taking")
    assert done.returncode != 0 and "Traceback" not in done.stdout
    assert 'error: experiment "taking": select: source: results/nowhere is neither an experiment in the same' in done.stdout
    assert "results/nowhere/selected.json" in done.stdout


@pytest.mark.slow
def test_two_users_run_two_experiments_in_one_folder_at_once(tmp_path: Path) -> None:
    """Without the profile `local`: Snakemake's own lock is of files, and they share none."""
    running = []
    for user in ("anna", "boris"):
        config = write_config(tmp_path / f"{user}.yaml", {"name": user, "output": None}, COUNTED)
        places = ["--snakefile", ROOT / "Snakefile", "--directory", tmp_path, "--configfile", config]
        printed = tmp_path / f"{user}.printed"
        running.append((started(tmp_path, [*map(str, places), "--cores", "1"], printed), printed))
    for process, printed in running:
        process.join(MOST_SECONDS)
        assert process.exitcode == 0, printed.read_text(encoding="utf-8")
    for user in ("anna", "boris"):
        assert (tmp_path / "results" / user / "report.html").is_file()
        names = {file.read_text(encoding="utf-8").split()[1] for file in (tmp_path / f"results/{user}/operators").iterdir()}
        assert names == {f"{user}_0", f"{user}_1"}

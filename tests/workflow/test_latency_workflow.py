"""A selection by latency in the workflow: operators of the shortlist are measured first, and only the selected ones trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_run import Done
from small_run import RESULTS, planned, snakemake, write_config

from syno.config import Experiment
from syno.stages.selection import read_selected
from syno.stages.workflow_stages import jobs

BY_LATENCY = {"select": {"by": "latency", "within": 0.9, "shortlist": 2, "count": 1}}


@pytest.mark.slow
def test_the_fastest_of_the_shortlist_is_selected_and_nothing_is_measured_twice(done: Done) -> None:
    measured = {file: file.stat().st_mtime_ns for file in done.results.glob("tune/*/*.json")}
    made = snakemake(done.folder, done.changed(**BY_LATENCY), f"{RESULTS}/selected.json")
    assert made.returncode == 0, made.stdout
    listed = read_selected(done.results / "shortlist.json")
    (selected,) = read_selected(done.results / "selected.json")
    assert selected.key in {one.key for one in listed} and 1 <= len(listed) <= 2
    ((place),) = selected.fastest_on
    assert (place.compiler, place.device) == ("eager", "cpu") and place.speedup is not None
    assert {file.parent.name for file in done.results.glob("tune/*/eager-cpu.json")} >= {
        "original",
        *(one.key for one in listed),
    }
    assert {file: file.stat().st_mtime_ns for file in measured} == measured


@pytest.mark.slow
def test_before_the_search_the_shortlist_is_as_long_as_it_may_be(tmp_path: Path) -> None:
    config = write_config(tmp_path / "small.yaml", BY_LATENCY)
    found = planned(tmp_path, config)
    assert (found["tune"], found["train"], found["shortlist"]) == (3, 2, 1)
    assert found == {rule: len(files) for rule, files in jobs(Experiment.load(config)).items()}

"""Targets as the documents name them: joins of every kind, and what is deleted, whatever target is named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dry_run import dry_run
from small_run import planned

from syno.config import Experiment, load_experiments
from syno.paper.figures.catalogue import PAPER_FIGURES
from syno.stages.networks import keys
from syno.stages.opening import keep_config
from syno.stages.restore import write_manifest
from syno.stages.selection import Selected, write_selected
from syno.stages.targets import MEASURED
from syno.stages.workflow_stages import STAGES

SHAPES = {"layers": "paper-3x3", "data": "shapes", "data_settings": {"classes": 6, "size": 32}}
EXPERIMENTS: Mapping[str, Any] = {
    "published": {"artifact": "data"},
    "again": {
        "workload": {"model": "resnet18", **SHAPES},
        "select": {"source": "published", "count": 1},
        "train": {"seeds": []},
        "tune": {"compilers": ["eager"]},
    },
    "figures": {"join": {"of": "all"}},
}
FIGURES, OPERATOR = len(PAPER_FIGURES), "c8af236e4ad6"
JOINED = {"join": 1, "headlines": 1, "figure": FIGURES, "report": 1}


def write(folder: Path, experiments: Mapping[str, Any] = EXPERIMENTS) -> Path:
    file = folder / "group.yaml"
    file.write_text(yaml.safe_dump({"name": "group", "experiments": dict(experiments)}, sort_keys=False), encoding="utf-8")
    return file


def test_joins_of_every_documented_kind_are_planned(tmp_path: Path) -> None:
    """Of all, of names, of folders of results that other files made, and of other joins."""
    folders = [Path("results/mission/published"), tmp_path / "of others" / "x"]
    for folder in (tmp_path / folder for folder in folders):
        (folder / MEASURED).parent.mkdir(parents=True)
        (folder / MEASURED).touch()
    joins = {
        "named": ["published", "again"],
        "folders": ["again", *map(str, folders)],
        "joins": ["named", "folders"],
        "nothing-here": [str(folders[0])],
    }
    config = write(tmp_path, {**EXPERIMENTS, **{name: {"join": {"of": of}} for name, of in joins.items()}})
    jobs = dry_run(tmp_path, config, "workflow/profiles/local", "--cores", "2", "--quiet", "host")
    read = {Path(job.outputs.split(", ")[0]).parent.name: set(job.inputs.split(", ")) for job in jobs if job.rule == "join"}
    experiments = {one.name: one for one in load_experiments(config).values()}

    def files(name: str, stage: str) -> set[str]:
        return {str(path) for path in STAGES[stage].paths(experiments[name])}

    both = files("published", "artifact") | {file for file in files("again", "tables") if "measurements" in file}
    assert all(both <= read[name] for name in ("figures", "named"))
    assert {f"{folder}/{MEASURED}" for folder in folders} < read["folders"]
    assert read["joins"] == files("named", "join") | files("folders", "join")
    assert read["nothing-here"] == {f"{folders[0]}/{MEASURED}"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a run of all experiments leaves, as far as a dry run looks at them."""
    root = tmp_path_factory.mktemp("finished")
    config, before = write(root), Path.cwd()
    os.chdir(root)
    seconds = 1_000_000_000
    for experiment in load_experiments(config).values():
        keep_config(experiment)
        for stage in STAGES.values():
            for file in stage.paths(
                experiment,
                keys(experiment, [OPERATOR]) if isinstance(experiment, Experiment) else [],
                (*stage.files, *stage.also),
            ):
                file.parent.mkdir(parents=True, exist_ok=True)
                if stage.name == "select":
                    write_selected([Selected(key=OPERATOR, name="operator_1", metrics={})], file)
                else:
                    file.write_text(stage.name, encoding="utf-8")
                seconds += 1
                os.utime(file, (seconds, seconds))
        write_manifest(experiment, complete=True)
    os.chdir(before)
    return root


AFTER_TABLES = {"tables": 1, **JOINED}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "deleted", "jobs"),
    [
        ("figures", "", {}),
        ("figures", "again/tune/original/eager-cpu.json", {"tune": 1, **AFTER_TABLES}),
        (f"results/group/figures/{MEASURED}", "again/tune/original/eager-cpu.json", {"tune": 1, "tables": 1, "join": 1}),
        ("figures", "again/selected.json", {"select": 1, "tune": 1, **AFTER_TABLES}),
        ("figures", "published/artifact.json", {"artifact": 1, "select": 1, **AFTER_TABLES}),
        ("again", "published/artifact.json", {"artifact": 1, "select": 1, "tables": 1, "figure": 1, "report": 1}),
        ("figures", "figures/figures/figure-5.png", {"figure": 1, "report": 1}),
        ("figures", "figures/tables/headlines.csv", {"headlines": 1, "report": 1}),
        ("published", "again/tune/original/eager-cpu.json", {}),  # on which it does not depend
        ("again", "again/report.html", {"report": 1}),
    ],
)
def test_a_deleted_file_is_made_again_for_every_target_that_depends_on_it(
    target: str, deleted: str, jobs: dict[str, int], finished: Path
) -> None:
    file = finished / "results" / "group" / deleted
    kept = (file.read_bytes(), file.stat()) if deleted else None
    if kept:
        file.unlink()
    found = planned(finished, finished / "group.yaml", target)
    if kept:
        file.write_bytes(kept[0])
        os.utime(file, ns=(kept[1].st_atime_ns, kept[1].st_mtime_ns))
    assert found == jobs

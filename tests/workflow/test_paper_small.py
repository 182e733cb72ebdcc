"""The chain of config/paper-small.yaml, from a search to the page with the paper's figures, with fewer and smaller networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from small_run import ROOT, planned, snakemake

from syno.config import load_experiments
from syno.paper.joined import FINAL, PROXY
from syno.stages.workflow_stages import jobs

CONFIG = ROOT / "config" / "paper-small.yaml"
TAKEN = ("resnet18", "large-resnet18", "layers-resnet34", "gpt", "figures")


def smaller() -> dict[str, Any]:
    """The config with some of its experiments, each with less to do."""
    given: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    given["experiments"] = {name: given["experiments"][name] for name in TAKEN}
    given["common"]["study"]["n_trials"] = 2
    given["common"]["workload"]["training"] = {"most_steps": 2}
    found = given["experiments"]
    found["resnet18"] |= {"ablations": {"canonical": {"samples": 2, "complete": 0}}}
    for name in ("resnet18", "large-resnet18"):
        found[name]["workload"]["data_settings"] |= {"train": 64, "test": 64}
    found["large-resnet18"]["tune"] |= {"compilers": ["eager"]}
    found["layers-resnet34"]["workload"] |= {"layers": "paper-3x3"}  # two layers, each of which a process of its own measures
    found["layers-resnet34"]["workload"]["data_settings"] |= {"size": 16}
    found["layers-resnet34"]["train"] = {"seeds": [], "baselines": ["nas_pte_1"]}
    found["gpt"]["workload"]["training"] |= {"most_steps": 4, "round_steps": 2, "most_tests": 16}
    found["figures"]["join"] |= {"proxy": ["resnet18", "gpt"], "final": ["large-*"]}
    return given


@pytest.mark.slow
def test_the_small_paper_has_the_stages_of_the_paper(tmp_path: Path) -> None:
    """The whole of it is planned, with the same stages as config/paper.yaml, and ends in the joined page."""
    found = planned(tmp_path, CONFIG)
    assert found["join"] == found["headlines"] == 1
    paper = {stage for one in load_experiments(ROOT / "config" / "paper.yaml").values() for stage in jobs(one)}
    assert paper - {*found} == {"convert", "shortlist"}  # ImageNet's files, and a choice among several operators


@pytest.mark.slow(minutes=2)
def test_a_search_ends_in_the_figures(tmp_path: Path) -> None:
    config = tmp_path / "paper-small.yaml"
    config.write_text(yaml.safe_dump(smaller(), sort_keys=False), encoding="utf-8")
    done = snakemake(tmp_path, config, "figures")  # without the pages of the others
    assert done.returncode == 0, done.stdout
    folder = tmp_path / "results" / "paper-small" / "figures"
    rows = pandas.read_parquet(folder / "tables" / "measurements.parquet")
    assert {*rows["experiment"]} == {*TAKEN, "paper"} - {"figures"} and {*rows["origin"]} == {"measured", "paper"}
    assert {*rows.loc[rows["experiment"] == "resnet18", "data_role"]} == {PROXY}
    assert {*rows.loc[rows["experiment"] == "large-resnet18", "data_role"]} == {FINAL}
    shown = {file.stem: pandas.read_parquet(file) for file in (folder / "tables").glob("figure-*.parquet")}
    assert {*shown["figure-6"]["model"]} == {"resnet18@0.125"} and (shown["figure-6"]["latency_origin"] == "measured").all()
    assert {*shown["figure-9"]["family"]} == {"original", "NAS-PTE", "Syno"}
    assert (shown["figure-10"].groupby("operator")["step"].max() >= 4).all()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f'id="figure-{number}"' in page for number in (5, 6, 8, 9, 10)) and "Left out" in page
    assert not pandas.read_parquet(folder / "tables" / "ablation-canonical.parquet").empty

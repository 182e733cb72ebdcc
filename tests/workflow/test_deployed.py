"""The workflow as others deploy it: as a module, from its folder `.test`, and in the catalogue of workflows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml
from finished_run import Done
from small_run import FIELDS, ROOT, planned, run_snakemake, snakemake

MODULE = """
module syno:
    snakefile: "{root}/workflow/Snakefile"
    config: config

use rule * from syno
"""
CONFIGFILE = 'configfile: "config/config.yaml"\n'
CORES = ("--cores", "2")


def jobs(printed: str) -> list[str]:
    """The numbers of jobs in a dry run, without the target's."""
    lines = printed.partition("Job stats:")[2].partition("\n\n")[0].splitlines()[3:]
    return [" ".join(line.split()) for line in lines if not line.startswith(("all", "default"))]


def deploy(folder: Path, settings: Path) -> None:
    """Write what `snakedeploy deploy-workflow` writes, with the settings as the config."""
    (folder / "config").mkdir()
    shutil.copy(settings, folder / "config" / "config.yaml")
    (folder / "workflow").mkdir()
    (folder / "workflow" / "Snakefile").write_text(CONFIGFILE + MODULE.format(root=ROOT), encoding="utf-8")


def test_a_deployed_module_plans_the_quickstart(tmp_path: Path) -> None:
    deploy(tmp_path, ROOT / "config" / "config.yaml")
    done = run_snakemake(tmp_path, ["--dry-run", *CORES])
    assert done.returncode == 0, done.stdout
    counted = dict(line.split(" ") for line in jobs(done.stdout) if not line.startswith("total"))
    assert {rule: int(count) for rule, count in counted.items()} == planned(tmp_path, ROOT / "config" / "quickstart.yaml")
    assert "results/quickstart/report.html" in done.stdout


def test_a_module_needs_no_config_file(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(f"config.update({dict(FIELDS)!r})\n{MODULE.format(root=ROOT)}", encoding="utf-8")
    done = run_snakemake(tmp_path, ["--dry-run", *CORES])
    assert done.returncode == 0 and f"{FIELDS['output']}/report.html" in done.stdout, done.stdout


@pytest.mark.slow
def test_a_deployed_module_runs(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(dict(FIELDS)), encoding="utf-8")
    deploy(tmp_path, settings)
    done = run_snakemake(tmp_path, [*CORES])
    assert done.returncode == 0, done.stdout
    assert "<svg" in (tmp_path / FIELDS["output"] / "report.html").read_text(encoding="utf-8")
    again = run_snakemake(tmp_path, ["--dry-run", *CORES])
    assert "Nothing to be done" in again.stdout, again.stdout


def test_a_folder_with_a_config_is_run_by_its_name(tmp_path: Path) -> None:
    """`snakemake --directory .test`, as workflows are tested."""
    shutil.copytree(ROOT / ".test", tmp_path / ".test")
    done = run_snakemake(tmp_path, ["--snakefile", str(ROOT / "Snakefile"), "--directory", ".test", "--dry-run", *CORES])
    assert done.returncode == 0 and "results/small/report.html" in done.stdout, done.stdout


@pytest.mark.slow
def test_the_report_of_snakemake_has_the_page_and_the_figures(done: Done) -> None:
    file = done.folder / "report.zip"
    made = snakemake(done.folder, done.config, "--report", str(file))
    assert made.returncode == 0, made.stdout
    shutil.unpack_archive(file, done.folder / "report")
    names = {path.name for path in (done.folder / "report").rglob("*") if path.is_file()}
    assert {"report.html", "scores.csv", "selected.json", "data.json"} <= names and any(name.endswith(".svg") for name in names)


def test_the_catalogue_finds_what_it_asks_for() -> None:
    shown = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))
    assert shown["usage"]["software-stack-deployment"] == {"conda": True} and shown["usage"]["report"]
    schema = yaml.safe_load((ROOT / "workflow" / "schemas" / "config.schema.yaml").read_text(encoding="utf-8"))
    assert "workload" in str(schema) and (ROOT / "config" / "README.md").is_file()
    assert {"slurm", "local"} <= {entry.name for entry in os.scandir(ROOT / "profiles")}

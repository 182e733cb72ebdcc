"""Twelve trainings of about one second each, as jobs of a workflow: with the fork server and without it.

    python benchmarks/short_jobs.py --output docs/measured/short_jobs.md

The experiment trains the original network and three operators with three seeds each, and makes tables, a figure and the page of
them. Both runs are on two cores, one after the other, each in a folder of its own.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import reports
import yaml

from syno.base.fork_client import OFF, THREADS, VARIABLE

ROOT = Path(__file__).parents[1]
EXPERIMENT: Mapping[str, Any] = {
    "name": "short",
    "workload": {
        "width": 0.5,
        "data_settings": {"preset": "micro", "train": 1024, "test": 256},
        "training": {"epochs": 3, "batch": 64},
    },
    "spec": {"depth": 4, "reads": "none"},
    "select": {"operators": [{"operator": name} for name in ("separable_conv2d", "low_rank_conv2d", "shift_conv1x1")]},
    "train": {"seeds": [1, 2, 3]},
    "tune": {"compilers": []},
    "output": "out",
}
PR_SET_CHILD_SUBREAPER = 36
PASSING = ("cpu_seconds", "curve_minutes", "date", "checksum")  # fields of a record that differ from run to run
# Of one job without the server: what it imports, in the order in which it does.
PARTS = {
    "Python": "pass",
    "the commands of Syno": "import syno.cli",
    "torch": "import torch",
    "the rest of Syno": "import syno.config, syno.train.training_record, syno.stages.train",
    "torch._dynamo, for an optimizer": "import torch._dynamo",
}


class Run(NamedTuple):
    """One run: its seconds, its CPU-seconds, the seconds of each training's job, and the records without passing fields."""

    seconds: float
    cpu_seconds: float
    jobs: list[float]
    records: dict[str, Any]


def run(server: str | None) -> Run:
    """Run the experiment in a new folder. Raises RuntimeError if the workflow fails."""
    with tempfile.TemporaryDirectory(prefix="syno-short-jobs-") as name:
        folder = Path(name)
        (folder / "short.yaml").write_text(yaml.safe_dump(dict(EXPERIMENT)), encoding="utf-8")
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", name]
        command += [
            "--configfile",
            str(folder / "short.yaml"),
            "--profile",
            str(ROOT / "workflow/profiles/local"),
            "--cores",
            "2",
        ]
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        environment |= {} if server is None else {VARIABLE: server}
        began, used = time.monotonic(), children_seconds()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        wait_for_server()
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        rows = [next(csv.DictReader(file.open(), delimiter="\t")) for file in folder.glob("out/benchmark/train/*/*.tsv")]
        records = {str(file.relative_to(folder)): json.loads(file.read_text()) for file in folder.glob("out/train/*/*.json")}
        for record in records.values():
            for field in PASSING:
                record.pop(field, None)
        return Run(seconds, children_seconds() - used, [float(row["s"]) for row in rows], records)


def wait_for_server() -> None:
    """Wait for processes whose parents have ended, so that `children_seconds` counts them."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def children_seconds() -> float:
    """The CPU-seconds of all children of this process that have ended, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parts() -> list[list[str]]:
    """Return a row for each part of what a training imports: its name and the median CPU-seconds of three runs."""
    rows, code, before = [], "", 0.0
    for name, more in PARTS.items():
        code += f"{more}\n"
        measured = []
        for _ in range(3):
            used = children_seconds()
            environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)
            measured.append(children_seconds() - used)
        rows.append([name, f"{max(statistics.median(measured) - before, 0):.2f}"])
        before = statistics.median(measured)
    return rows


def report(with_server: Run, without: Run) -> list[str]:
    """The page, without its heading."""
    rows = [
        [name, f"{one.seconds:.0f}", f"{one.cpu_seconds:.0f}", f"{statistics.median(one.jobs):.1f}", f"{max(one.jobs):.1f}"]
        for name, one in (("with the fork server", with_server), ("without it", without))
    ]
    columns = ["run", "seconds", "CPU-seconds", "a training's job: median, s", "longest, s"]
    equal = "The records of both runs are equal" if with_server.records == without.records else "The records DIFFER"
    return [
        "",
        *reports.paragraph(
            f"{len(with_server.jobs)} trainings of about a second, then tables, a figure and the page, on two cores "
            "([workflow.md](../workflow.md#short-jobs)). Times include Snakemake's own start."
        ),
        "",
        *reports.table(columns, rows),
        "",
        f"{equal}, except for times and dates. The first jobs wait for the server's imports.",
        "",
        "What a process of a training costs before it trains:",
        "",
        *reports.table(["part", "CPU-seconds"], parts()),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    options = reports.parse(argparse.ArgumentParser(description=__doc__.partition("\n")[0]), arguments)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # the fork server becomes a child of this process when Snakemake ends
    command = "benchmarks/short_jobs.py" + (f" --output {options.output}" if options.output else "")
    heading = reports.heading("Short jobs", command)
    reports.deliver([*heading, *report(run(None), run(OFF))], options.output)


if __name__ == "__main__":
    main()

"""A small experiment, and Snakemake on it in a folder, as users start it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from syno.base.fork_client import OFF, VARIABLE
from syno.stages.workflow.command import RUN_NOTHING
from syno.stages.workflow.fork_server import start_fork_server
from syno.stages.workflow.process import use_this_environment

ROOT = Path(__file__).parents[2]
RESULTS = "out"
MOST_SECONDS = 1800  # of one command, on any machine: what takes longer hangs
# A search that trains nothing, for what ends it at once.
COUNTED: Mapping[str, Any] = {
    "spec": {"preset": "resnet18", "depth": 4},
    "evaluate": "cost",
    "original": {"flops": 2.3e11, "parameters": 1.1e7},
    "study": {"n_trials": 2},
    "select": {"by": "reward"},
    "output": RESULTS,
}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, group by group."""
    inner = {key: merged(base[key], value) for key, value in changes.items() if isinstance(base.get(key), Mapping)}
    return {**base, **changes, **inner}


# The small experiment of other tests, with less to do: of a file, since scripts in this folder do not find modules beside it.
FIELDS: Mapping[str, Any] = merged(
    yaml.safe_load((ROOT / "tests" / "support" / "small_experiment.yaml").read_text(encoding="utf-8")),
    {"study": {"n_trials": 3}, "select": {"count": 1}, "train": {"seeds": [1], "baselines": []}, "output": RESULTS},
)


def write_config(file: Path, changes: Mapping[str, Any] | None = None, base: Mapping[str, Any] = FIELDS) -> Path:
    file.write_text(yaml.safe_dump(merged(base, changes or {})), encoding="utf-8")
    return file


def arguments(folder: Path, config: Path, *more: str) -> list[str]:
    """What Snakemake is given to run an experiment in a folder."""
    profile = ROOT / "workflow" / "profiles" / "local"
    places = ["--snakefile", ROOT / "Snakefile", "--directory", folder, "--configfile", config, "--profile", profile]
    return [*map(str, places), "--cores", "2", *more]


def environment() -> dict[str, str]:
    """In which commands are those of this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


SERVERS: list[str] = []  # addresses of fork servers that were started
# Snakemake begins in copies of a process that has imported it and Syno: for small experiments, that takes most of the time.
FORKS = multiprocessing.get_context("forkserver")
PRELOADED = ["snakemake.cli", "snakemake.dag", "syno.paper.artifact.imported", "syno.stages.networks"]
FORKS.set_forkserver_preload([*PRELOADED, "syno.notebook.speed_up"])  # for all tests of a process, as tests/support does


def snakemake(folder: Path, config: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an experiment in a folder, with variables of the environment; all that it prints is in `stdout`."""
    return run_snakemake(folder, arguments(folder, config, *more), **variables)


def run_snakemake(folder: Path, given: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Snakemake, started in a folder, with these arguments; all that it prints is in `stdout`."""
    if RUN_NOTHING.isdisjoint(given):
        variables = {VARIABLE: fork_server(), **variables}
    with NamedTemporaryFile("r", encoding="utf-8") as printed:
        process = started(folder, given, Path(printed.name), **variables)
        process.join(MOST_SECONDS)
        if process.exitcode is None:
            process.kill()
            pytest.fail(f"it hangs: {printed.read()}")
        return subprocess.CompletedProcess(given, process.exitcode, printed.read(), "")


def fork_server() -> str:
    """Return the address of the server whose children run jobs. All runs of this process have one, which ends with it."""
    if not Path(SERVERS[-1] if SERVERS else "").is_socket():  # one that has had nothing to do for long has ended
        before = dict(os.environ)
        os.environ.update(environment())
        use_this_environment()  # as the workflow does
        deployed = SimpleNamespace(deployment_method=set())
        start_fork_server(SimpleNamespace(is_main_process=True, local_exec=True, touch=False, deployment_settings=deployed))
        SERVERS.append(os.environ.get(VARIABLE, OFF))
        os.environ.clear()
        os.environ.update(before)
    return SERVERS[-1]


def started(folder: Path, given: Sequence[str], printed: Path, **variables: str) -> BaseProcess:
    """Start Snakemake in a folder with these arguments, in a session of its own; all that it prints is added to a file."""
    process = FORKS.Process(target=_begin, args=(folder, given, {**environment(), **variables}, printed))
    process.start()
    with suppress(ProcessLookupError):  # it has ended
        while process.pid is not None and os.getpgid(process.pid) != process.pid:
            time.sleep(0.01)
    return process


def _begin(folder: Path, given: Sequence[str], variables: Mapping[str, str], printed: Path) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(printed, os.O_WRONLY | os.O_APPEND | os.O_CREAT), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    from snakemake.cli import main

    try:
        main(list(given))
    finally:
        atexit._run_exitfuncs()  # such a copy ends without; Syno says there which jobs failed


def planned(folder: Path, config: Path, *targets: str) -> dict[str, int]:
    """How many jobs of each rule a dry run lists; targets, which do nothing, and `total` are left out."""
    done = snakemake(folder, config, "--dry-run", *targets)
    assert done.returncode == 0, done.stdout
    table = done.stdout.partition("Job stats:")[2].partition("\ntotal")[0]
    return {
        rule: int(count)
        for rule, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)
        if rule not in ("all", "default", *targets)
    }

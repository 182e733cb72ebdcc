"""Commands of syno in children of the fork server: the same files, messages and exit codes as without it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from command_lines import HANGS_AFTER
from small_experiment import FIELDS

from syno.base.fork_client import THREADS, VARIABLE
from syno.cli.forked import FIRST, THEN
from syno.stages.workflow.fork_server import ONE_THREAD, start_fork_server

# Starts a server as a workflow does, and runs commands: first by the server, which must not refuse them, then without it.
PROGRAM = f"""
import os, subprocess, sys
from types import SimpleNamespace
from syno.stages.workflow.fork_server import start_fork_server
deployed = SimpleNamespace(deployment_method=set())
start_fork_server(SimpleNamespace(is_main_process=True, local_exec=True, touch=False, deployment_settings=deployed))
by_server = "import sys; from syno.base.fork_client import run_forked; sys.exit(run_forked(sys.argv))"
for line in sys.stdin:
    print(subprocess.run([sys.executable, "-c", by_server, *line.split()], check=False).returncode)
del os.environ[{VARIABLE!r}]
"""


def test_jobs_use_a_server_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setenv(VARIABLE, address := str(tmp_path / "server"))
    deployed = SimpleNamespace(deployment_method=set())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        start_fork_server(SimpleNamespace(is_main_process=True, local_exec=True, touch=False, deployment_settings=deployed))
    assert os.environ[VARIABLE] == address


def test_the_modules_that_it_imports_are_there() -> None:
    """One of another name would be left out, and each job would import it."""
    assert [name for name in FIRST + THEN if name.startswith("syno") and find_spec(name) is None] == []


@pytest.mark.slow
def test_the_modules_that_it_imports_start_no_thread() -> None:
    code = "import os; from syno.cli.forked import *; list(imported(FIRST + THEN)); print(len(os.listdir('/proc/self/task')))"
    command, environment = [sys.executable, "-c", code], {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=HANGS_AFTER)
    assert done.stdout.splitlines()[-1] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_training_is_the_same(tmp_path: Path, threads: str) -> None:
    workload = FIELDS["workload"]
    training = {**workload["training"], "threads": int(threads)}
    config = {**FIELDS, "workload": {**workload, "training": training}, "output": "out"}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    variables = {**dict.fromkeys(THREADS, threads), "COLUMNS": "200"}
    environment = {**os.environ, **variables, "PYTHONPATH": str(Path(__file__).parents[2])}
    given = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 120}
    commands = [["train", "small.yaml", "original", "--seed", "3", "--output"], ["train", "small.yaml", "nothing", "--output"]]
    lines = "\n".join(" ".join([*command, "forked.json"]) for command in commands)
    forked = subprocess.run([sys.executable, "-c", PROGRAM], input=lines, check=True, **given)
    alone = [subprocess.run([sys.executable, "-m", "syno", *one, "alone.json"], check=False, **given) for one in commands]
    assert forked.stdout.split()[-1] == "2" and forked.stderr == "".join(one.stderr for one in alone)
    assert [one.returncode for one in alone] == [0, 2]
    records = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("forked", "alone")]
    for record in records:
        for passing in ("cpu_seconds", "curve_minutes", "date", "checksum"):
            del record[passing]
    assert records[0] == records[1]

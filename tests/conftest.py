"""Settings of all tests. Modules that tests share are in `tests/support`."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from pathlib import Path

# Tests run side by side: one thread for each, and for each process that they start. It counts before numpy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ.setdefault("SYNO_CORE_LOCKS", "off")  # tests do not wait for what else runs on this machine

import pytest
import torch
from typer.main import get_command

from syno.base.collection import SELDOM

torch.set_num_threads(1)  # whatever is set outside

# A thousand processes of the tests import Syno: where bytecode may not be written, each would compile it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What takes no time in a command, and much in thousands of tests.
gc.set_threshold(*SELDOM)
TESTING = pytest.MonkeyPatch()
TESTING.setattr("typer.testing._get_command", cache(get_command))  # once, and not for each call of a command
if not torch.cuda.is_available():
    for kind in ("cuda", "xpu", "mtia"):  # they keep seeds for GPUs that are not there, each with the stack of calls as text
        TESTING.setattr(f"torch.{kind}.manual_seed_all", lambda seed: None)

ARTIFACT_VARIABLE = "SYNO_ARTIFACT"


@pytest.hookimpl(trylast=True)  # when tests have been left out by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that take minutes at the beginning of what each process of pytest-xdist begins with.

    As the last ones, they would run alone, beside idle cores; among the first ones of one process, one after the other.
    """

    def minutes(item: pytest.Item) -> float:
        return max((mark.kwargs.get("minutes", 0) for mark in item.iter_markers("slow")), default=0)

    long = sorted(filter(minutes, items), key=minutes, reverse=True)
    short = [item for item in items if not minutes(item)]
    processes, left = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), len(items)
    ordered: list[pytest.Item] = []
    for number in range(processes):  # `--dist worksteal` deals them out in equal parts that follow each other
        part, first = left // (processes - number), long[number::processes]
        following = max(part - len(first), 0)
        ordered += [*first, *short[:following]]
        short, left = short[following:], left - part
    items[:] = [*ordered, *short]


@pytest.fixture(scope="session")
def artifact() -> Path:
    """The data folder of the authors' published artifact, which is no part of this project. Skips where it is absent."""
    given = os.environ.get(ARTIFACT_VARIABLE)
    if not given or not Path(given).is_dir():
        where = f"; {ARTIFACT_VARIABLE}={given} is no folder" if given else ""
        pytest.skip(f"published artifact not found: set {ARTIFACT_VARIABLE} to its data folder{where}")
    return Path(given)

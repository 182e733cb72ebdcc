"""What Slurm answers is understood, and that it does not answer."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syno.stages.workflow.patches import SLURM_STATES
from syno.stages.workflow.slurm import understand_slurm, understood

PLUGIN, (QUERY,) = SLURM_STATES.module, SLURM_STATES.attributes

logger = logging.getLogger("slurm")


def asked(answer: dict[str, str] | None, seconds: float | None) -> tuple[dict[str, str], float]:
    async def query(command: str, logger: Any) -> tuple[dict[str, str] | None, float | None]:
        assert command == "sacct"
        return answer, seconds

    return asyncio.run(understood(query)("sacct", logger))  # type: ignore[arg-type]


def test_who_cancelled_a_job_is_no_part_of_its_state() -> None:
    answer = {"1": "CANCELLED by 1000", "2": "RUNNING", "3": "OUT_OF_MEMORY"}
    assert asked(answer, 0.5) == ({"1": "CANCELLED", "2": "RUNNING", "3": "OUT_OF_MEMORY"}, 0.5)


def test_no_answer_is_no_state_of_any_job(caplog: pytest.LogCaptureFixture) -> None:
    assert asked(None, None) == ({}, 0.0)
    assert "asked again" in caplog.text


@pytest.mark.parametrize(
    ("squeue", "state"),
    [("echo 7 PENDING", {"7": "PENDING"}), ("echo 8 RUNNING", {"7": "NODE_FAIL"}), ("exit 1", {})],
    ids=["back in the queue", "not", "not known"],
)
def test_a_job_whose_node_was_lost(squeue: str, state: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{squeue}\n", encoding="ascii")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert asked({"6": "RUNNING", "7": "NODE_FAIL"}, 0.5) == ({"6": "RUNNING"} | state, 0.5)


def test_nothing_is_done_where_there_is_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, PLUGIN, raising=False)
    understand_slurm()
    assert PLUGIN not in sys.modules


def test_the_plugin_asks_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def query(command: str, logger: Any) -> tuple[dict[str, str], float]:
        return {"1": "CANCELLED by 0"}, 0.1

    plugin = SimpleNamespace(**{QUERY: query})
    monkeypatch.setitem(sys.modules, PLUGIN, plugin)  # type: ignore[arg-type]
    understand_slurm()
    assert asyncio.run(getattr(plugin, QUERY)("sacct", logger)) == ({"1": "CANCELLED"}, 0.1)


def test_the_installed_plugin_has_what_is_replaced() -> None:
    plugin = pytest.importorskip(PLUGIN, reason='the plugin for Slurm is not installed: pip install "syno-operators[slurm]"')
    assert asyncio.iscoroutinefunction(getattr(plugin, QUERY))
    assert QUERY in plugin.Executor.check_active_jobs.__code__.co_names  # a name of that module, looked up at each call

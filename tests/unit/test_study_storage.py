"""Where an experiment keeps its study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syno.config import Experiment
from syno.search.storage.opening import journal_file

FIELDS: dict[str, Any] = {"spec": {"preset": "resnet18"}, "evaluate": "cost", "original": {"flops": 2e11, "parameters": 1e7}}


@pytest.mark.parametrize(
    ("given", "storage"),
    [
        (None, "sqlite:///there/trials.db"),
        ("journal", "journal:there/trials.log"),
        ("journal:elsewhere/a.log", "journal:elsewhere/a.log"),
        ("postgresql+psycopg://user@host/name", "postgresql+psycopg://user@host/name"),
    ],
)
def test_of_one_experiment(given: str | None, storage: str) -> None:
    assert Experiment(name="a", output="there", study={"storage": given}, **FIELDS).storage == storage


def test_experiments_with_journals_in_their_folders_share_none() -> None:
    files = {journal_file(Experiment(name=name, study={"storage": "journal"}, **FIELDS).storage) for name in ("a", "b")}
    assert files == {Path("results/a/trials.log"), Path("results/b/trials.log")}

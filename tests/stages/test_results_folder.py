"""One folder of results for several users, and on another machine."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_lines import HANGS_AFTER
from forked_processes import Forked

from syno.cli import app
from syno.config import Experiment
from syno.stages.search import search
from syno.stages.study import freeze

COUNTED: dict[str, Any] = {
    "spec": {"preset": "resnet18", "depth": 4},
    "evaluate": "cost",
    "original": {"flops": 2.3e11, "parameters": 1.1e7},
    "select": {"by": "reward"},
}
USERS = {"anna": {"name": "mcts"}, "boris": {"name": "random"}}


def experiment(name: str, storage: str | None, trials: int, **more: Any) -> Experiment:
    return Experiment(name=name, study={"n_trials": trials, "storage": storage}, **{**COUNTED, **more})


def command(*arguments: str) -> None:
    """Run a command of Syno in this process."""
    app(arguments)


def fingerprints(one: Experiment) -> list[str]:
    """Of the operators, in the order in which they are proposed."""
    return list(search(one).trials.fingerprint)


@cache
def alone(user: str) -> list[str]:
    """Return the fingerprints of the operators that a user finds without others."""
    return fingerprints(experiment(user, "memory:", 8, policy=USERS[user]))


@pytest.mark.parametrize(
    "storage",
    [
        pytest.param(None, id="of its own"),
        "journal:results/all.log",
        "sqlite:///results/all.db",
    ],
)
@pytest.mark.slow
def test_two_users_at_once_each_find_what_they_would_alone(
    storage: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a study of his own, in storages of their own or in one that they share."""
    monkeypatch.chdir(tmp_path)
    running = []
    for user, policy in USERS.items():
        fields = {"name": user, **COUNTED, "policy": policy, "study": {"n_trials": 8, "storage": storage}}
        Path(f"{user}.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
        running.append(Forked(command, "search", f"{user}.yaml"))
    for process in running:
        _, errors = process.communicate(timeout=HANGS_AFTER)
        assert process.returncode == 0, errors
    for user, policy in USERS.items():
        own = experiment(user, storage, 8, policy=policy)
        trials = search(own).trials  # it has all of them
        assert list(trials.number) == list(range(8)) and set(trials.outcome) == {"complete"}
        assert list(trials.fingerprint) == alone(user)
        freeze(own)
        names = {file.read_text(encoding="utf-8").split()[1] for file in (own.folder / "operators").iterdir()}
        assert names == {f"{user}_{number}" for number in range(8)}


@pytest.mark.slow
@pytest.mark.parametrize("storage", [None, "journal"])
def test_a_study_goes_on_where_its_folder_was_copied_to(
    storage: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    begun = experiment("moved", storage, 4)
    first = fingerprints(begun)
    freeze(begun)
    written = [file for file in (here / "results").rglob("*") if file.is_file()]
    assert len(written) >= 7  # the config, the study, the table, an operator for each trial
    assert [file.name for file in written if str(here).encode() in file.read_bytes()] == []
    shutil.copytree(here / "results", there / "results")
    monkeypatch.chdir(there)
    shutil.rmtree(here)
    whole = fingerprints(experiment("moved", storage, 8))
    assert whole[:4] == first and whole == fingerprints(experiment("moved", "memory:", 8))

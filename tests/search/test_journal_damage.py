"""Damaged journals: every case ends with all that is before the damage, after what the error says, or with one clear line."""

from __future__ import annotations

import json
import subprocess
import warnings
from itertools import takewhile
from pathlib import Path
from typing import Any

import optuna
import pytest
from damage import KINDS, damaged
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from small_studies import evaluate, study

from syno.base.errors import StorageError
from syno.search.storage.opening import open_storage
from syno.search.storage.store import TrialStore

optuna.logging.set_verbosity(optuna.logging.WARNING)

TRIALS = 24


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A finished study."""
    path = tmp_path_factory.mktemp("finished") / "trials.log"
    study(str(path)).run(evaluate, TRIALS)
    return path.read_bytes()


def facts(trials: list[FrozenTrial]) -> dict[int, tuple[Any, ...]]:
    """What matters of each trial that is there, by number."""
    found = {
        trial.number: (trial.user_attrs, trial.state, trial.value) for trial in trials if "fingerprint" in trial.user_attrs
    }
    return {number: json.loads(json.dumps(fact)) for number, fact in found.items()}


def trials_of(path: Path) -> list[FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(path)))
    studies = storage.get_all_studies()
    return storage.get_all_trials(studies[0]._study_id) if studies else []


def whole_part(data: bytes, changed: bytes) -> bytes:
    """The lines before the first that was changed."""
    pairs = zip(data.split(b"\n")[:-1], changed.split(b"\n")[:-1], strict=False)
    lines = [before for before, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return b"".join(line + b"\n" for line in lines)


def mended(path: Path, error: StorageError) -> None:
    """Do what the error says."""
    assert "\n" not in str(error)
    command = str(error).partition("before it: ")[2]
    assert command, str(error)
    subprocess.run(command, shell=True, check=True, cwd=path.parent)


def check(data: bytes, changed: bytes, path: Path) -> bool:
    """Open a damaged journal and compare it with the one it was. Whether something of it is left."""
    whole = whole_part(data, changed)
    path.write_bytes(whole)
    expected = facts(trials_of(path)) if whole else {}
    path.write_bytes(changed)
    for _ in range(2):
        try:
            found = facts(TrialStore(*open_storage(f"journal:{path}"), "study").trials())
        except StorageError as error:
            if "before it: " not in str(error):  # no journal any more, or whole lines changed places
                assert "\n" not in str(error)
                return False
            mended(path, error)
        else:
            break
    assert found == expected == facts(trials_of(path)), "Optuna reads something else"
    assert path.read_bytes()[: len(whole)] == whole
    return bool(whole)


CASES = [pytest.param(2, id="quick"), pytest.param(50, id="thorough", marks=pytest.mark.slow)]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_before_the_damage_is_kept(journal: bytes, tmp_path: Path, kind: str, cases: int) -> None:
    opened = [check(journal, damaged(journal, kind, seed), tmp_path / f"{seed}.log") for seed in range(cases)]
    assert sum(opened) >= 0.9 * cases  # a journal that is cut off within its first line, or nearly all zeros, is none


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_study_goes_on(journal: bytes, tmp_path: Path, kind: str) -> None:
    for seed in range(3):
        path = tmp_path / f"{seed}.log"
        path.write_bytes(damaged(journal, kind, seed))
        try:
            found = study(str(path))
        except StorageError as error:
            mended(path, error)
            found = study(str(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a half line
            found.run(evaluate, TRIALS + 3, alone=True)
        trials = found.trials
        ended = trials[trials.outcome.isin(["complete", "failed"])]
        assert len(ended) == ended.fingerprint.nunique() == TRIALS + 3

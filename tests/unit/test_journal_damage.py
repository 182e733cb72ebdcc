"""Damaged journals: every case ends with all that is whole in the right place, or with one clear line."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest
from damage import KINDS, damaged
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from small_studies import evaluate, study

from syno.base.errors import StorageError
from syno.search.storage.journal_lines import Position
from syno.search.storage.journal_recovery import read, recover
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


def lines_by_trial(data: bytes) -> dict[int, list[bytes]]:
    """The lines that make up each trial."""
    found: dict[int, list[bytes]] = {}
    for line in data.splitlines():
        log = json.loads(line)
        if log["op_code"] == 4:
            found[len(found)] = [line]
        elif "trial_id" in log:
            found[log["trial_id"]].append(line)
    return found


def check(data: bytes, changed: bytes, path: Path) -> bool:
    """Open a damaged journal and compare it with the one it was. Whether it could be opened."""
    path.write_bytes(data)
    before = facts(trials_of(path))
    path.write_bytes(changed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            store = TrialStore(*open_storage(f"journal:{path}"), "study")
            trials = store.trials()
        except StorageError as error:
            assert "\n" not in str(error)
            return False
    found, whole = facts(trials), set(changed.splitlines())
    assert found == facts(trials_of(path)), "Optuna reads something else"
    for number, (attributes, state, value) in found.items():
        expected, *rest = before[number]
        assert {name: expected[name] for name in attributes} == attributes
        assert "result" not in attributes or TrialState(state) == TrialState.RUNNING or [state, value] == rest
    for number, lines in lines_by_trial(data).items():
        if whole.issuperset(lines):
            assert found[number] == before[number], f"trial {number} is whole"
    # As it was once, but for the newline perhaps; that it went on cannot be seen.
    is_earlier = data.startswith(changed) and b"\n" in (changed[-1:] or b"\n", data[len(changed) : len(changed) + 1])
    assert said or found == before or is_earlier, "damaged in silence"
    return True


CASES = [pytest.param(2, id="quick"), pytest.param(200, id="thorough", marks=pytest.mark.slow)]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_whole_is_kept(journal: bytes, tmp_path: Path, kind: str, cases: int) -> None:
    opened = [check(journal, damaged(journal, kind, seed), tmp_path / f"{seed}.log") for seed in range(cases)]
    assert sum(opened) >= 0.95 * cases  # a journal that is cut off within its first line, or nearly all zeros, is none


@pytest.mark.parametrize("cases", [pytest.param(10, id="quick"), pytest.param(500, id="thorough", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_recovered_is_without_damage(journal: bytes, kind: str, cases: int) -> None:
    for seed in range(cases):
        changed = journal
        for times in range(1 + seed % 3):
            changed = damaged(changed, kind, 1000 * seed + times) or journal
        recovered, position = recover(changed), Position()
        assert read(recovered.raw, position) == recovered.logs
        assert recover(recovered.raw).raw == recovered.raw
        # No line is invented: whole lines state their number, and behind the last of them each damaged line counts as one. A
        # line may be in several pieces there, as the content of this journal and so the damage differ from run to run.
        assert position.line <= journal.count(b"\n") + len(recovered.damaged)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_study_goes_on(journal: bytes, tmp_path: Path, kind: str) -> None:
    for seed in range(10):
        path = tmp_path / f"{seed}.log"
        path.write_bytes(damaged(journal, kind, seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = study(str(path))
            found.run(evaluate, TRIALS + 3, alone=True)
        trials = found.trials
        ended = trials[trials.outcome.isin(["complete", "failed"])]
        assert len(ended) == ended.fingerprint.nunique() == TRIALS + 3

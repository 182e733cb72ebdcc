"""Studies on a PostgreSQL that is started for these tests, where one is installed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import search_worker
from command_lines import HANGS_AFTER
from forked_processes import Forked
from postgresql_server import missing, restart, server
from small_studies import evaluate, proposed, study


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if lacking := missing():
        pytest.skip(lacking)
    with server() as url:
        yield url


@pytest.mark.slow
def test_workers_that_come_and_go_share_the_trials(url: str, tmp_path: Path) -> None:
    notes, count = tmp_path / "notes", 16
    workers = [Forked(search_worker.work, url, "mcts", count, notes, 0.05) for _ in range(2)]
    for worker in workers:
        _, errors = worker.communicate(timeout=HANGS_AFTER)
        assert worker.returncode == 0, errors
    trials = search_worker.open_study(url, "mcts").trials
    ended = trials[trials.outcome.isin(["complete", "failed"])]
    assert len(ended) == ended.fingerprint.nunique() == count
    assert set(trials.outcome) <= {"complete", "failed", "duplicate", "interrupted"}
    begun = Counter(line.split()[1] for line in notes.read_text(encoding="utf-8").splitlines() if line.startswith("begin"))
    assert len(begun) == begun.total() == count


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [4])
def test_a_server_that_is_restarted_under_load_loses_nothing(url: str, tmp_path: Path, restarts: int) -> None:
    """As in a crash. Workers wait for it, and go on."""
    notes, count, name = tmp_path / "notes", 15 * restarts, f"restarted{restarts}"
    workers = [Forked(search_worker.work, url, "random", count, notes, 0.02, name) for _ in range(2)]
    for number in range(1, restarts + 1):
        while len(notes.read_text(encoding="utf-8").splitlines() if notes.exists() else ()) < 12 * number:
            assert any(worker.poll() is None for worker in workers), workers[0].communicate()[1]
            time.sleep(0.01)
        restart(url, 0.5)
    for worker in workers:
        _, errors = worker.communicate(timeout=HANGS_AFTER)
        assert worker.returncode == 0, errors
    trials = search_worker.open_study(url, "random", name=name).trials
    ended = trials[trials.outcome.isin(["complete", "failed"])]
    assert len(ended) == ended.fingerprint.nunique() == count
    assert set(trials.outcome) <= {"complete", "failed", "duplicate", "interrupted"}


@pytest.mark.slow
def test_two_studies_in_one_database_do_not_meet(url: str) -> None:
    seeds = {"one": 1, "other": 2}
    studies = {name: study(url, name=name, seed=seed) for name, seed in seeds.items()}
    for trials in (2, 5, 8):
        for found in studies.values():
            found.run(evaluate, trials)
    for name, seed in seeds.items():
        alone = study(name=name, seed=seed)
        alone.run(evaluate, 8)
        assert proposed(study(url, name=name, seed=seed)) == proposed(alone)


def test_a_database_that_is_not_there_is_one_message(url: str) -> None:
    from syno.base.errors import SpecError

    with pytest.raises(SpecError, match='the storage .*nowhere.* cannot be used: .*"nowhere"'):
        study(url.replace("/postgres?", "/nowhere?"))

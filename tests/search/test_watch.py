"""Watching a search: what is read while trials are added, that nothing is written or locked, and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pandas
import pytest
from postgresql_server import missing, server
from search_trees import small_tree
from small_studies import diverging, evaluate, sound, stop, study

from syno.base.errors import SpecError, StorageError
from syno.ir.graph import PGraph
from syno.report.watching import failure_lines, watch_text
from syno.search.goal import Goal
from syno.search.snapshot import Snapshot, StudyLimits, snapshot
from syno.search.storage.view import NotBegunError, Stored, StudyView
from syno.search.study import Study
from syno.train.contract import Report

NOON = datetime(2026, 1, 1, 12)


@pytest.fixture(params=["journal:{}/trials.log", "sqlite:///{}/a study.db"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def look(view: StudyView, planned: int = 12) -> Snapshot:
    return snapshot(view.read(), StudyLimits(planned), datetime.now())


def stored(searched: Study) -> Stored:
    """What a view would read of a study in memory."""
    return Stored(searched._store.trials(), searched._store.attributes)


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


class TestReading:
    def test_trials_are_added_between_two_looks(self, storage: str) -> None:
        searched, view = study(storage), StudyView(storage, "study")
        assert (look(view).finished, look(view).is_over, look(view).rate) == (0, False, None)
        searched.run(evaluate, 6, poll_seconds=0)
        first = look(view)
        searched.run(evaluate, 12, poll_seconds=0)
        last = look(view)
        assert (first.finished, first.is_over, last.finished, last.is_over) == (6, False, 12, True)
        pandas.testing.assert_frame_equal(last.trials, searched.trials)
        assert last.ended["failed"] == (searched.trials["outcome"] == "failed").sum() > 0

    def test_a_running_trial_is_seen_from_within_it(self, storage: str) -> None:
        searched, view, seen = study(storage), StudyView(storage, "study"), list[Snapshot]()

        def watched(operator: PGraph, report: Report) -> Mapping[str, float]:
            seen.append(look(view))
            return evaluate(operator, report)

        searched.run(watched, 2, poll_seconds=0)
        assert [(one.running, one.finished, one.is_over) for one in seen] == [(1, 0, False), (1, 1, False)]

    def test_nothing_is_written_and_no_worker_waits(self, storage: str, tmp_path: Path) -> None:
        """The view stays open while a worker goes on, which would fail at a lock that is held."""
        searched, view = study(storage), StudyView(storage, "study")
        searched.run(evaluate, 3, poll_seconds=0)
        before = contents(tmp_path)
        assert look(view).finished == look(StudyView(storage, "study")).finished == 3
        assert contents(tmp_path) == before
        assert [file for file in tmp_path.iterdir() if file.is_symlink() or file.name.endswith(("-journal", "-wal"))] == []
        searched.run(evaluate, 5, poll_seconds=0)
        assert look(view).finished == 5

    def test_a_storage_that_nobody_may_write_is_read(self, storage: str, tmp_path: Path) -> None:
        study(storage).run(evaluate, 3, poll_seconds=0)
        for file in tmp_path.iterdir():
            file.chmod(0o500 if file.is_dir() else 0o400)
        assert look(StudyView(storage, "study")).finished == 3

    @pytest.mark.slow
    @pytest.mark.skipif(bool(missing()), reason=missing())
    def test_postgresql(self) -> None:
        with server() as url:
            with pytest.raises(NotBegunError, match="has no tables"):
                StudyView(url, "study").read()
            searched, view = study(url), StudyView(url, "study")
            searched.run(evaluate, 3, poll_seconds=0)
            assert look(view).finished == 3
            searched.run(evaluate, 4, poll_seconds=0)
            assert look(view).finished == 4


class TestSpacesWithoutFurtherOperators:
    @pytest.mark.slow
    def test_they_are_searched_to_the_end(self, storage: str) -> None:
        searched, view = study(storage, tree=small_tree()), StudyView(storage, "study")
        searched.run(evaluate, 2, poll_seconds=0)
        assert not look(view, 50).is_over
        searched.run(evaluate, 50, poll_seconds=0)
        found = look(view, 50)
        assert found.is_over and 2 < found.finished < 50
        assert watch_text("x", found).splitlines()[-1] != "The search is finished."
        assert "The search is finished: the space holds no further operator." in watch_text("x", found)

    def test_withdrawn_trials_are_searched_again(self) -> None:
        searched = study(tree=small_tree())
        searched.run(sound, 50, poll_seconds=0)
        assert snapshot(stored(searched), StudyLimits(50), datetime.now()).is_over
        searched._store.withdraw([0], "the set-up was broken")
        assert not snapshot(stored(searched), StudyLimits(50), datetime.now()).is_over


class TestErrors:
    @pytest.mark.parametrize("url", ["journal:{}/none.log", "sqlite:///{}/none.db"])
    def test_no_file_yet_and_none_is_made(self, url: str, tmp_path: Path) -> None:
        with pytest.raises(NotBegunError, match="has not begun: .*none.* is not there"):
            StudyView(url.format(tmp_path), "study").read()
        assert list(tmp_path.iterdir()) == []

    def test_another_study(self, storage: str) -> None:
        study(storage)
        with pytest.raises(NotBegunError, match="holds no study of this name; it has: study"):
            StudyView(storage, "other").read()

    def test_a_database_without_tables(self, tmp_path: Path) -> None:
        (tmp_path / "empty.db").touch()
        with pytest.raises(NotBegunError, match="has no tables"):
            StudyView(f"sqlite:///{tmp_path}/empty.db", "study").read()
        assert (tmp_path / "empty.db").read_bytes() == b""

    def test_memory(self) -> None:
        with pytest.raises(SpecError, match="in the memory of the process"):
            StudyView("memory:", "study").read()

    def test_a_file_that_is_no_storage_may_be_one_later(self, tmp_path: Path) -> None:
        file = tmp_path / "trials.db"
        file.write_bytes(b"no database" * 100)
        view = StudyView(f"sqlite:///{file}", "study")
        with pytest.raises(StorageError, match="cannot be used: file is not a database"):
            view.read()
        file.unlink()
        study(f"sqlite:///{file}").run(evaluate, 1, poll_seconds=0)
        assert look(view).finished == 1


def at(minutes: list[float], *, took: float = 1, running: int = 0, planned: int = 100) -> Snapshot:
    """A search whose trials ended so many minutes before noon, each after `took` minutes."""
    ended = [NOON - timedelta(minutes=one) for one in minutes]
    rows = [
        {"number": number, "outcome": "complete", "reward": 0.5, "started": end - timedelta(minutes=took), "ended": end}
        for number, end in enumerate(ended)
    ]
    counts = {"complete": len(rows), "pruned": 0, "failed": 0, "paused": 0}
    return Snapshot(NOON, planned, counts, running, {}, pandas.DataFrame(rows), (), is_over=False)  # type: ignore[arg-type]


class TestRate:
    def test_counts_until_now(self) -> None:
        found = at([6, 5, 4, 3], running=1)  # 4 trials in the 7 minutes since the first began
        assert found.rate is not None and (found.rate.trials, found.rate.per_second * 60) == (4, pytest.approx(4 / 7))
        assert found.seconds_left == pytest.approx(96 * 7 / 4 * 60) and found.recent == 4 and found.seconds_since_last == 180

    def test_begins_anew_after_an_interruption(self) -> None:
        found = at([600, 599, 598, 6, 5, 4, 3], running=1)
        assert found.rate is not None and (found.rate.trials, found.rate.per_second * 60) == (4, pytest.approx(4 / 7))

    def test_is_that_of_the_latest(self) -> None:
        found = at([*(float(one) for one in range(240, 30, -6)), *(one / 2 for one in range(60, 0, -2))], took=0.5)
        assert found.rate is not None and found.rate.trials == 30 and found.rate.per_second * 60 == pytest.approx(30 / 36)

    def test_needs_three_trials_and_somebody_who_works(self) -> None:
        assert at([2, 1], running=1).rate is None and at([2, 1], running=1).seconds_left is None
        assert at([5, 4, 3]).seconds_left is None and at([5, 4, 3]).is_idle
        assert at([5, 4, 0.5]).seconds_left is not None and not at([5, 4, 0.5]).is_idle


class TestText:
    def test_a_search_that_is_finished(self) -> None:
        searched = study()
        searched.run(evaluate, 20, poll_seconds=0)
        text = watch_text("wide", snapshot(stored(searched), StudyLimits(20), datetime.now()))
        best = searched.best()[0]
        assert "wide: 20 of 20 trials finished" in text and "The search is finished." in text
        assert f"best: wide_{best.number}, reward {best.reward:.4g}, accuracy {best.metrics['accuracy']:.4f}" in text
        assert "RuntimeError: one in eleven evaluations breaks" in text and "estimate" not in text

    def test_the_goal_and_the_nearest_operator(self) -> None:
        found = at([3, 2, 1])
        found.trials["metric_speedup"], found.trials["metric_accuracy"] = [1.2, 1.6, 1.4], [0.8, 0.8, 0.8]
        found.trials["metric_speedup_low"], found.trials["metric_speedup_high"] = [1.1, 1.55, 1.35], [1.3, 1.65, 1.45]
        text = watch_text("x", _described(found), Goal(speedup=1.5))
        assert "goal: of 3 complete trials, 1 meets it, 2 miss it; the nearest, x_1, meets: 1.60 times as fast" in text
        found.trials["metric_original_accuracy"] = 0.8
        text = watch_text("x", _described(found), Goal(speedup=1.5, lose_at_most=0.01))
        assert "1 may meet it, 2 miss it; the nearest, x_1, may meet (one seed: no interval of the accuracy): 1.60" in text
        assert "goal: no trial is complete yet\n" in watch_text("x", at([]), Goal(speedup=1.5))
        found.trials["outcome"] = "screened"
        assert "complete yet; the fastest operator so far is 1.60 times as fast" in watch_text("x", found, Goal(speedup=1.5))
        found.trials["metric_speedup"] /= 2
        slow = watch_text("x", found, Goal(speedup=1.5))
        assert "complete yet; none is faster than the original: the fastest operator so far is 0.80 times as fast" in slow

    def test_failures_that_stopped_it(self) -> None:
        searched = study()
        stop(searched, lambda operator, report: {}["accuracy"], 10)
        found = snapshot(stored(searched), StudyLimits(10), datetime.now())
        assert found.is_stopped and not found.is_over
        assert "Failures stopped the search" in watch_text("x", found)
        assert failure_lines(found) == ["withdrawn, 2 trials: KeyError: 'accuracy'"]

    def test_reasons_of_single_failures(self) -> None:
        searched = study()
        searched.run(
            lambda operator, report: diverging(operator, report) if len(searched.trials) == 2 else {"accuracy": 0.5}, 3
        )
        (line,) = failure_lines(snapshot(stored(searched), StudyLimits(3), datetime.now()))
        assert line.startswith("failed, 1 trial: ") and "the loss is nan at step 3" in line


def _described(found: Snapshot) -> Snapshot:
    found.trials["worker"], found.trials["seconds"], found.trials["message"] = "host:1", 1.0, ""
    return found

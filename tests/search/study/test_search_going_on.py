"""Studies go on exactly where they stopped, whichever write was the last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from search_trees import MockTree, hard_tree, wide_tree
from small_studies import evaluate, proposed, study

from syno.search.policies import POLICIES
from syno.search.storage.journal import Journal


class Killed(BaseException):
    """As a kill: nothing that happens afterwards in this process counts."""


class MortalJournal(Journal):
    """Dies at its n-th write, before or after it."""

    def __init__(self, path: Path, lock_seconds: float, die_at: float, after: bool) -> None:
        super().__init__(path, lock_seconds)
        self.writes, self.die_at, self.after = 0, die_at, after

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.writes += 1
        if self.writes > self.die_at or (self.writes == self.die_at and not self.after):
            raise Killed
        super().append_logs(logs)
        if self.writes == self.die_at:
            raise Killed


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, bool], list[MortalJournal]]:
    """Makes the journals that are opened from now on die at their n-th write."""

    def arrange(die_at: float, after: bool) -> list[MortalJournal]:
        opened: list[MortalJournal] = []

        def open_(path: Path, lock_seconds: float) -> MortalJournal:
            opened.append(MortalJournal(path, lock_seconds, die_at, after))
            return opened[-1]

        monkeypatch.setattr("syno.search.storage.opening.Journal", open_)
        return opened

    return arrange


class TestGoingOnExactly:
    """A study that was killed proposes what an uninterrupted one does. On a tree that learns about dead ends."""

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", list(POLICIES))
    @pytest.mark.parametrize("after", [False, True])
    def test_killed_at_any_write(
        self, tmp_path: Path, policy: str, after: bool, mortal: Callable[[float, bool], list[MortalJournal]]
    ) -> None:
        whole = study(policy=policy)
        whole.run(evaluate, 5)
        opened = mortal(float("inf"), after)
        study(str(tmp_path / "count.log"), policy=policy).run(evaluate, 5)
        for die_at in range(1, opened[0].writes + 1):
            journal = str(tmp_path / f"{die_at}.log")
            mortal(die_at, after)
            with pytest.raises(Killed):
                study(journal, policy=policy).run(evaluate, 5)
            mortal(float("inf"), after)
            found = study(journal, policy=policy)
            found.run(evaluate, 5, alone=True)
            assert proposed(found) == proposed(whole), f"killed at write {die_at}"
            assert found._scheduler.state.finished == 5

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [12, pytest.param(30, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("make_tree", [wide_tree, hard_tree])
    @pytest.mark.parametrize("policy", list(POLICIES))
    def test_killed_again_and_again(
        self,
        tmp_path: Path,
        policy: str,
        make_tree: Callable[[], MockTree],
        count: int,
        mortal: Callable[[float, bool], list[MortalJournal]],
    ) -> None:
        options = {"policy": policy, "most_attempts": 100}
        whole = study(tree=make_tree(), **options)
        whole.run(evaluate, count)
        journal, lives = str(tmp_path / "trials.log"), 0
        while True:
            mortal(7 + 2 * lives % 5, bool(lives % 2))
            lives += 1
            try:
                found = study(journal, tree=make_tree(), **options)
                found.run(evaluate, count, alone=True)
            except Killed:
                continue
            break
        assert lives > count / 6
        assert proposed(found) == proposed(whole)

    def test_an_error_of_the_storage_leaves_a_study_that_goes_on(
        self, tmp_path: Path, mortal: Callable[[float, bool], list[MortalJournal]]
    ) -> None:
        """In the same process, with the same object: its own trial is not taken for that of a living worker."""
        whole = study()
        whole.run(evaluate, 8)
        opened = mortal(12, False)
        found = study(str(tmp_path / "trials.log"))
        with pytest.raises(Killed):
            found.run(evaluate, 8)
        opened[0].die_at = float("inf")
        found.run(evaluate, 8)
        assert proposed(found) == proposed(whole)

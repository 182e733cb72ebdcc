"""`syno watch`: one look, looks until the end, the page, and errors in one line; and `syno --version`."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import optuna
import pytest
import torch
from command_lines import Run, one_line

import syno
from syno.cli import watching
from syno.config import load_experiment
from syno.stages.search import search
from syno.stages.watch import Watch

SEARCH = """
spec: small.yaml
original: {flops: 20000, parameters: 1600}
policy: {name: random}
study: {n_trials: 8, storage: journal}
"""
SOME = ["n_trials: 8", "n_trials: 5"]
JOURNAL = Path("results/quick/trials.log")


@pytest.fixture
def begun(folder: Path) -> Path:
    """A search of 8 trials, 5 of which are there."""
    config = folder / "quick.yaml"
    config.write_text(SEARCH.replace(*SOME), encoding="utf-8")
    search(load_experiment(config))
    config.write_text(SEARCH, encoding="utf-8")
    return config


def go_on(config: Path) -> None:
    search(load_experiment(config))


class TestWatch:
    def test_once_shows_a_search_by_config_folder_or_name(self, run: Run, begun: Path) -> None:
        before = JOURNAL.read_bytes()
        text = run("watch", "quick.yaml", "--once").stdout
        assert "quick: 5 of 8 trials finished (5 complete), 0 running" in text and "best: quick_" in text
        go_on(begun)
        assert before != JOURNAL.read_bytes() and JOURNAL.read_bytes().startswith(before)
        texts = [run("watch", given, "--once").stdout for given in ("quick.yaml", "results/quick", "quick")]
        assert all("8 of 8" in one and "The search is finished." in one for one in texts)

    @pytest.mark.slow
    def test_it_watches_until_the_end_and_writes_a_page(self, run: Run, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pages: list[str] = []

        def work(seconds: float) -> None:
            pages.append(Path("live.html").read_text(encoding="utf-8"))
            go_on(begun)

        monkeypatch.setattr(watching.time, "sleep", work)
        lines = run("watch", "quick.yaml", "--page", "live.html", "--every", "9").stdout.splitlines()
        assert lines[0].startswith("quick: 5 of 8") and "The search is finished." in lines
        last = Path("live.html").read_text(encoding="utf-8")
        reload = '<meta http-equiv="refresh" content="9">'
        assert len(pages) == 1 and reload in pages[0] and "5 of 8 trials finished" in pages[0]
        assert 'http-equiv="refresh"' not in last and "The search is finished." in last
        best = max(search(load_experiment(begun)).best(8), key=lambda one: one.reward)
        assert f'data-name="quick_{best.number}"' in last and "Search over time" in last and "Rewards of the search" in last
        assert len(re.findall(r'data-name="quick_\d+"', last)) == 6 and f"found in trial {best.number}, reward" in last

    def test_it_waits_for_a_storage_that_is_away_for_a_while(
        self, run: Run, begun: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aside, steps = JOURNAL.with_name("aside"), iter(("away", "back"))

        def pause(seconds: float) -> None:
            if next(steps) == "away":
                JOURNAL.rename(aside)
            else:
                aside.rename(JOURNAL)
                go_on(begun)

        monkeypatch.setattr(watching.time, "sleep", pause)
        text = run("watch", "quick.yaml").stdout
        assert "the storage cannot be read now: " in text and text.index("cannot be read") < text.index("finished (8 complete)")

    def test_on_a_terminal_the_display_is_drawn_in_place(self, begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
        go_on(begun)
        watching._on_terminal(Watch("quick.yaml"), 1, None)
        assert "quick: 8 of 8 trials finished" in capsys.readouterr().out

    def test_an_interruption_ends_it_with_its_exit_code(self, run: Run, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(watching.time, "sleep", interrupt)
        assert "5 of 8" in run("watch", "quick.yaml", code=130).stdout

    def test_searches_that_cannot_be_watched_are_one_line(self, run: Run, folder: Path) -> None:
        assert "neither a config nor a folder of results" in one_line(run("watch", "nothing", "--once", code=2))
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        line = one_line(run("watch", "quick.yaml", code=2))
        assert "has not begun" in line and "Begin it: syno search quick.yaml" in line and not Path("results").exists()
        away = SEARCH.replace("journal", "'postgresql+psycopg://nobody@127.0.0.1:1/none'")
        (folder / "quick.yaml").write_text(away, encoding="utf-8")
        assert "cannot be reached" in one_line(run("watch", "quick.yaml", code=75))  # it may be there later


def test_versions_in_one_line(run: Run) -> None:
    (line,) = run("--version").stdout.splitlines()
    others = f"Python {platform.python_version()}, torch {torch.__version__}, optuna {optuna.__version__}"
    assert line == f"syno {syno.__version__} ({others})"

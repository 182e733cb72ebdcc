"""The report page in a browser: it makes no error, and what its address asks for is what it shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from command_lines import HANGS_AFTER
from made_once import made_once
from result_tables import NAMES, results, trial_table
from small_artifact import page_once

from syno.report.page import page
from syno.report.result_figures import FIGURES, pictures
from syno.train.metric import METRICS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    def make(folder: Path) -> None:
        (folder / "page.html").write_text(page(results(), pictures(results(), FIGURES)), encoding="utf-8")

    return (made_once(tmp_path_factory, "drawn-page", make) / "page.html").read_text(encoding="utf-8")


def opened(html: str, folder: Path, address: str = "") -> tuple[str, list[str]]:
    """The document after its script has run, and what the browser complained of."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser found; install one of: {', '.join(BROWSERS)}")
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        "--enable-logging=stderr", "--v=0", f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"{file.as_uri()}{address}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def cards(document: str) -> dict[str, str]:
    """The opening tag of each card, in the order on the page."""
    tags = re.findall(r"<article\b[^>]*>", document)
    return {re.findall(r'data-name="([^"]*)"', tag)[0]: tag for tag in tags}


def hidden(document: str) -> set[str]:
    return {name for name, tag in cards(document).items() if " hidden" in tag}


def unfolded(document: str) -> set[str]:
    return {name for name, tag in cards(document).items() if 'class="card open"' in tag}


def test_the_report_opens_without_an_error(html: str, tmp_path: Path) -> None:
    document, complaints = opened(html, tmp_path)
    assert complaints == []
    assert set(cards(document)) == set(NAMES)
    assert (hidden(document), unfolded(document)) == (set(), set())
    assert 'class="script"' in document  # the script ran


def test_the_address_says_what_is_shown(html: str, tmp_path: Path) -> None:
    document, complaints = opened(html, tmp_path, "#filter=conv&card=shift_conv1x1&sort=FLOPs")
    assert complaints == []
    assert hidden(document) == {"operator_1", "operator_2"}
    assert unfolded(document) == {"shift_conv1x1"}
    assert list(cards(document)) == ["operator_2", "shift_conv1x1", "separable_conv2d", "operator_1", "conv2d"]
    assert "3 of 5" in document


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_score_is_first(metric: str, tmp_path: Path) -> None:
    best_first = ["conv2d", "operator_1", "separable_conv2d", "shift_conv1x1", "operator_2"]
    for address in (f"#sort={metric}", "#sort=FLOPs"):
        document, complaints = opened(page(results(metric=metric), []), tmp_path, address)
        assert complaints == []
        assert (list(cards(document)) == best_first) == (address == f"#sort={metric}")


def test_what_failed_is_the_slowest(html: str, tmp_path: Path) -> None:
    document, complaints = opened(html, tmp_path, "#sort=latency%2C+inductor+on+cpu")
    assert complaints == []
    assert list(cards(document))[-1] == "shift_conv1x1"


def test_an_address_that_means_nothing_does_no_harm(html: str, tmp_path: Path) -> None:
    document, complaints = opened(html, tmp_path, "#card=%3Cnone%3E&sort=none&other=1")
    assert complaints == []
    assert (hidden(document), unfolded(document)) == (set(), set())


def test_the_page_of_published_data(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    document, complaints = opened(page_once(tmp_path_factory), tmp_path, "#card=operator_1")
    assert complaints == []
    assert unfolded(document) == {"operator_1"}
    assert len(re.findall(r"<figure class=\"plot\"", document)) == 8


def test_the_search_tree(tmp_path: Path) -> None:
    trials = trial_table().assign(path="Reduce Share", steps=[f"a {number}" for number in range(30)])
    document, complaints = opened(page(results(trials=trials), []), tmp_path)
    assert complaints == []
    assert document.count("<circle") == 32  # the root, one step of all trials, and the second of each


def test_a_page_with_nothing_on_it_makes_no_error(tmp_path: Path) -> None:
    table = trial_table(0)
    empty = results(names=(), trials=table, scores=table, latencies=table)
    assert opened(page(empty, []), tmp_path)[1] == []


@pytest.mark.parametrize("planted", ["undefined_name();", "fetch('picture.png');"])
def test_errors_are_seen(html: str, tmp_path: Path, planted: str) -> None:
    """What the tests above rely on. The policy of the page is taken out, or it would keep the script from running."""
    broken = re.sub(r"<meta http-equiv=[^>]*>", "", html).replace("</body>", f"<script>{planted}</script></body>")
    assert opened(broken, tmp_path)[1] != []


def test_scripts_that_are_not_the_page_s_own_do_not_run(html: str, tmp_path: Path) -> None:
    document, complaints = opened(html.replace("</body>", "<script>document.title = 'taken';</script></body>"), tmp_path)
    assert "<title>glyphs" in document
    assert any("Content Security Policy" in line for line in complaints)

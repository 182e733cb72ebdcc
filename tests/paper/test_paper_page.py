"""The page of published data: figures with what deviates from the paper beside them, and the operators."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from small_artifact import imported_once, page_once, write_artifact
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.paper.experiments import PublishedData
from syno.paper.figures.catalogue import PAPER_FIGURES
from syno.paper.figures.page import published_results
from syno.paper.numbers import GUARD, INDUCTOR
from syno.paper.stages.artifact import import_artifact
from syno.paper.stages.figures import write_page
from syno.run.table import read_measurements
from syno.stages.figures import write_report
from syno.stages.store import OperatorStore

pytestmark = pytest.mark.slow  # most of a minute


def test_each_link_of_the_navigation_has_a_name_of_its_own(html: str) -> None:
    navigation = html.partition("<nav>")[2].partition("</nav>")[0]
    names = re.findall(r">([^<]+)</a>", navigation)
    assert len(set(names)) == len(names) and {"Figure 5", "Figure 5, by compiler"} < set(names)


def test_what_the_paper_does_not_print_is_said_in_a_sentence(html: str) -> None:
    assert "the paper has no such number" in html
    assert not re.search(r"the paper has (?:not in the paper|in words|as a bar)", html)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an import writes."""
    return Path(shutil.copytree(imported_once(tmp_path_factory), tmp_path_factory.mktemp("published") / "out"))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_once(tmp_path_factory)


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other figures take long."""
    monkeypatch.setattr("syno.paper.figures.page.PAPER_FIGURES", {"figure-8": PAPER_FIGURES["figure-8"]})


def section(html: str, name: str) -> str:
    return html.partition(f'<section id="{name}">')[2].partition("</section>")[0]


@pytest.mark.parametrize("name", PAPER_FIGURES)
def test_each_figure_is_drawn_on_it(name: str, html: str) -> None:
    own = section(html, name)
    assert f'<svg id="{name}"' in own or re.search(rf'<svg [^>]*id="{name}"', own)
    assert PAPER_FIGURES[name].caption[:40] in own


@pytest.mark.parametrize("name", ["figure-5", "figure-9"])
def test_the_wrong_guard_is_told_beside_latencies_of_tvm(name: str, html: str) -> None:
    assert "read mostly zeros" in section(html, name)


def test_the_guard_is_not_told_where_there_are_no_latencies(html: str) -> None:
    assert "read mostly zeros" not in section(html, "figure-10")
    assert "read mostly zeros" in GUARD


def test_deviations_are_beside_their_figures(html: str) -> None:
    """On the first target, networks take 60 ms, and the fastest operator that is accurate enough a third or half of that."""
    own = section(html, "figure-5")
    assert "Where it deviates from the paper" in own
    assert re.search(r"TVM, mobile CPU: mean speedup of networks: [\d.]+; the paper has 2.06", own)
    assert "NAS-PTE" not in own and "NAS-PTE" in section(html, "figure-9")


@pytest.mark.parametrize("name", ["figure-5", "figure-6", "figure-9"])
def test_bars_and_points_say_what_they_are(name: str, html: str) -> None:
    told = re.findall(r'class="point" data-operator="(\w+)"[^>]*>\s*<title>([^<]+): [^<]+</title>', section(html, name))
    assert told and all(operator and network for operator, network in told)


def test_the_page_needs_no_other_file(html: str) -> None:
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)
    assert not re.search(r"url\((?!#)", html)


def test_operators_have_cards_with_the_authors_numbers(folder: Path, html: str) -> None:
    record_name = "operator_1"  # the only one whose graph is in the small artifact
    assert f'data-name="{record_name}"' in section(html, "operators")
    (key,) = [file.stem for file in (folder / "operators").glob("*.txt")]
    operators = {record_name: OperatorStore(folder).get(key)}
    found = published_results(read_measurements(folder, "syno artifact import"), operators)
    (score,) = found.scores
    assert (score.score, score.role, score.flops) == (0.799, "published", 1500)
    assert len({(latency.compiler, latency.device) for latency in found.latencies}) == len(found.latencies) == 6
    assert {latency.speedup for latency in found.latencies} == {2.0}
    assert {latency.is_checked for latency in found.latencies if latency.compiler == "tvm"} == {False}
    assert {latency.is_checked for latency in found.latencies if latency.compiler == INDUCTOR} == {True}


@pytest.mark.usefixtures("one_figure")
def test_the_page_names_missing_data(tmp_path: Path) -> None:
    data = write_artifact(tmp_path / "data")
    (data / "vision/mdev/baseline-latency/llvm/qresnet18/benchmark_results.csv").unlink()
    import_artifact(data, tmp_path / "out")
    assert "missing or damaged: vision/mdev/baseline-latency/llvm/qresnet18" in write_page(tmp_path / "out").read_text()


@pytest.mark.usefixtures("one_figure")
def test_the_report_of_published_data_is_this_page(folder: Path, tmp_path: Path) -> None:
    experiment = PublishedData(name="published", artifact="data", output=folder)
    page = write_page(folder).read_text(encoding="utf-8")
    assert write_report(experiment, tmp_path / "page.html").read_text(encoding="utf-8") == page
    result = CliRunner().invoke(app, ["artifact", "report", str(folder)])
    assert (result.exit_code, result.stdout.strip()) == (0, str(folder / "report.html"))


def test_without_an_import_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="syno artifact import"):
        write_page(tmp_path)

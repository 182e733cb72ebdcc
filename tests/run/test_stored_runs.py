"""Runs whose records are stored in tests/golden/runs: their tables, pages, keys and files stay as they were.

Nothing is trained or measured: tables and pages are made of the records. `quickstart` is a run of `config/quickstart.yaml`, and
`answer` one of `syno.speed_up`; of both, loss curves have fewer points, and files of weights are empty. `published` is what the
authors' artifact holds.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import golden_files
import pytest
from made_once import made_once
from quick_cases import quick_cases

from syno.config import Experiment, load_experiment
from syno.paper.stages.artifact import import_artifact
from syno.paper.stages.figures import write_page
from syno.run import LOSSES
from syno.run.goal import judged_networks
from syno.stages.figures import names, write_report
from syno.stages.networks import keys
from syno.stages.places import SELECTED
from syno.stages.selection import read_selected
from syno.stages.tables import make_tables
from syno.stages.top import top
from syno.stages.workflow_stages import jobs

STORED = golden_files.FOLDER / "runs"
RUNS = ("quickstart", "answer")


class Words(HTMLParser):
    """The words of a page, those of its pictures and tooltips, too: a line for each text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ("script", "style")
        self.lines += [f"({value})" for name, value in attrs if name in ("title", "aria-label") and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden and (line := " ".join(data.split())):
            self.lines.append(line)

    def handle_comment(self, data: str) -> None:
        """matplotlib draws letters as shapes, and has their text in a comment."""
        self.lines.append(" ".join(data.split()))


def words(page: Path) -> list[str]:
    return Words(page.read_text(encoding="utf-8")).lines


def finished(folder: Path, name: str) -> None:
    """Put the records of a run into a folder, and make its tables and its page of them."""
    placed = shutil.copytree(STORED / name, folder / "results" / name)
    for file in placed.glob("train/*/*.json"):
        file.with_suffix(".safetensors").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_tables(found := load_experiment(f"results/{name}"))
        write_report(found)


@pytest.fixture(params=quick_cases(RUNS, "quickstart".__eq__))
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Experiment:
    """A run with its tables and its page. Not to be changed."""
    name = str(request.param)
    monkeypatch.chdir(made_once(tmp_path_factory, f"stored-{name}", lambda folder: finished(folder, name)))
    return load_experiment(f"results/{name}")


def test_tables(run: Experiment) -> None:
    for file in sorted(run.folder.glob("tables/*.csv")):
        text = file.read_text(encoding="utf-8")
        if file.stem == LOSSES:
            text = f"{hashlib.sha256(text.encode()).hexdigest()}\n"
        golden_files.check(f"runs/{run.folder.name}.{file.name}", text)


def test_page(run: Experiment) -> None:
    golden_files.check(f"runs/{run.folder.name}.page.txt", "\n".join(words(run.folder / "report.html")) + "\n")


def test_top(run: Experiment) -> None:
    golden_files.check(f"runs/{run.folder.name}.top.txt", top(f"results/{run.folder.name}", 10))


def test_keys_names_and_files(run: Experiment) -> None:
    selected = [one.key for one in read_selected(run.folder / SELECTED)]
    lines: list[str] = [f"networks: {', '.join(keys(run, selected))}", f"rivals: {', '.join(run.rival_names)}"]
    lines += [f"figures: {', '.join(names(run))}"]
    lines += [f"settings of {part}: {_checksum(run.part(part))}" for part in run.parts()]
    lines += [f"job of {stage}: {_relative(file, run)}" for stage, files in jobs(run, selected).items() for file in files]
    lines += sorted(f"file: {_relative(file, run)}" for file in run.folder.rglob("*") if file.is_file())
    golden_files.check(f"runs/{run.folder.name}.files.txt", "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def published(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "authors", lambda made: import_artifact(artifact, made))


@pytest.mark.slow
def test_published_tables_and_files(published: Path) -> None:
    """Checksums, since the tables are long."""
    lines = [f"{_checksum(file.read_text(encoding='utf-8'))} {file.name}" for file in sorted(published.glob("tables/*.csv"))]
    lines += [f"{_checksum(file.read_text(encoding='utf-8'))} {file.name}" for file in sorted(published.glob("operators/*"))]
    golden_files.check("runs/published.files.txt", "\n".join(lines) + "\n")


@pytest.mark.slow
def test_published_page(published: Path, artifact: Path, tmp_path: Path) -> None:
    made = shutil.copytree(published, tmp_path / "published")
    sentences = dict.fromkeys(line for line in words(write_page(made)) if line.count(" ") >= 5)
    golden_files.check("runs/published.page.txt", "\n".join(sentences).replace(str(artifact), "ARTIFACT") + "\n")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _relative(file: Path, run: Experiment) -> str:
    return file.absolute().relative_to(run.folder.absolute()).as_posix()


OPENED: list[str] = []
COUNTS = [False]  # an audit hook cannot be taken away


@pytest.fixture(scope="module")
def noted() -> None:
    """Add the hook once: a second one would count each file twice."""
    sys.addaudithook(_note_opening)


def _note_opening(event: str, arguments: tuple[object, ...]) -> None:
    if COUNTS[0] and event == "open":
        OPENED.append(str(arguments[0]))


@pytest.mark.usefixtures("noted")
def test_a_page_opens_each_file_once_and_judges_once(run: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of operators apart, whose names are looked up in all stores."""
    judged: list[int] = []

    def counted(*given: Any) -> Any:
        judged.append(1)
        return judged_networks(*given)

    monkeypatch.setattr("syno.stages.results.judged_networks", counted)
    OPENED.clear()
    COUNTS[0] = True
    try:
        write_report(run, tmp_path / "page.html")
    finally:
        COUNTS[0] = False
    folder = str(run.folder.absolute())
    own = [str(Path(name).absolute()) for name in OPENED if name.endswith((".json", ".parquet", ".yaml"))]
    twice = {name for name in own if name.startswith(folder) and own.count(name) > 1}
    assert own and len(judged) == 1 and {Path(name).name for name in twice} <= {"experiment.yaml"}  # compared, and shown

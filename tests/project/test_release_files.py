"""CHANGELOG.md and CITATION.cff: they can be parsed, and are of this version. Commands that install Syno do so."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

import syno
from syno.base.release import DISTRIBUTION

ROOT = Path(syno.__file__).parents[1]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
# Keys that the Citation File Format 1.2.0 requires, and others that it has.
OF_SOFTWARE = ({"cff-version", "message", "title", "authors"}, {"type", "version", "license", "preferred-citation"})
FOLDERS = ("docs", "envs", "config", "workflow", "examples", "benchmarks", "syno", "tests")  # that may say how to install Syno
READABLE = (".md", ".py", ".pyi", ".toml", ".yaml", ".sh", ".ipynb", ".smk", ".txt")
NOT_SYNO = re.compile(r"\binstall\b[^`\n;]*?[ \"']syno(?![\w./-])|[\"']syno\[[a-z,]+\]")  # another project's name
EXTRAS = re.compile(rf"[\"'](?:\.|{DISTRIBUTION})\[([a-z0-9,]+)\]|pip_install\([\"'](\w+)")
OF_PAPER = ({"type", "title", "authors"}, {"year", "collection-title", "url"})


@pytest.fixture(scope="module")
def citation() -> Any:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_changelog_begins_with_what_is_unreleased_and_the_version_of_the_package_is_its_newest() -> None:
    headings = re.findall(r"^## (.*)$", CHANGES, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    assert all(released)
    days = [date.fromisoformat(one[2]) for one in released if one]
    assert days == sorted(days, reverse=True)
    begun = re.findall(r"^The next version will be (\d+\.\d+\.\d+)", CHANGES, re.MULTILINE)
    assert [*begun, *(one[1] for one in released if one)][0] == syno.__version__


def test_the_changelog_has_lists_of_known_kinds() -> None:
    parts = re.split(r"^### (.*)$", CHANGES, flags=re.MULTILINE)
    assert set(parts[1::2]) <= KINDS and all(re.match(r"\n\n- \S", text) for text in parts[2::2])


def test_the_citation_has_the_fields_of_its_format(citation: Any) -> None:
    for found, (required, others) in ((citation, OF_SOFTWARE), (citation["preferred-citation"], OF_PAPER)):
        assert required <= set(found) <= required | others
        for author in found["authors"]:
            assert set(author) in ({"name"}, {"given-names", "family-names"}) and all(author.values())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["preferred-citation"]["type"] == "conference-paper" and citation["preferred-citation"]["year"] == 2025


def test_the_citation_is_of_this_version_and_of_the_paper_that_the_readme_names(citation: Any) -> None:
    assert citation["version"] == syno.__version__
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"*{citation['preferred-citation']['title']}* (ASPLOS 2025)" in readme


def test_commands_install_this_project_with_extras_that_it_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["name"], project["version"]) == (DISTRIBUTION, syno.__version__)
    wrong = ("pip install syno", 'pip install "syno[tvm]"', "-m pip install syno==0.1.0", "pip install -U syno", "'syno[tvm]'")
    right = ('pip install "syno-operators[tvm]"', "~/syno/bin/pip install syno_operators-*.whl", "pip install ./syno")
    assert all(map(NOT_SYNO.search, wrong)) and not any(map(NOT_SYNO.search, right))

    files = [
        *ROOT.glob("*.*"),
        *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.*") if file != Path(__file__)),
    ]
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files if file.suffix in READABLE}
    assert {file: found[0] for file, text in texts.items() if "install" in text and (found := NOT_SYNO.search(text))} == {}
    shown = "".join(text for file, text in texts.items() if "tests" not in file.parts)
    extras = {extra for one in EXTRAS.findall(shown) for extra in "".join(one).split(",")}
    assert "workflow" in extras and extras <= set(project["optional-dependencies"])

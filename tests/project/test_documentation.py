"""The pages of the documentation: all are in the navigation, and those that follow from code are up to date."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from pkgutil import resolve_name

import documents
import pytest
import yaml
from documents import PAGES, ROOT, SITE
from small_artifact import write_artifact

from syno.config.experiment import Experiment
from syno.config.options import options_table

sys.path.append(str(SITE))

from syno_site import commands, docstrings, files, flow_chart, gallery, names, navigation

COMMANDS = ROOT / "docs" / "commands.md"
HOW_TO = sorted((ROOT / "docs" / "howto").glob("*.md"))
SOURCES = sorted(path for room in ("syno", "benchmarks", "workflow") for path in (ROOT / room).rglob("*.py"))
NO_MODULES = {"syno.extensions"}  # the group of entry points
PLACES = re.compile(r"`((?:syno|tests|benchmarks|workflow|config|docs|envs|examples)/[\w./-]*)`")
PARTS = re.compile(r"`([\w/]+(?:\.py|/))`")  # of paths, from some folder of `syno` on
PLACEHOLDER = re.compile(r"[A-Z]{2}")  # as in syno/data/NAME.py
ON_MODULES = [ROOT / "docs" / name for name in ("architecture.md", "language.md")]  # pages that shorten paths


def test_every_page_is_in_the_navigation() -> None:
    listed = {"docs/index"}
    for page in navigation.LISTING:
        text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
        listed |= {name for pages in navigation.entries(text, page).values() for name in pages}
    assert listed == {documents.name(page).removesuffix(".md") for page in PAGES} | {"docs/tutorial"}


def test_the_page_of_commands_is_up_to_date() -> None:
    text = commands.page()
    if os.environ.get("UPDATE_GOLDEN"):
        COMMANDS.write_text(text, encoding="utf-8")
    assert COMMANDS.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("page", PAGES, ids=documents.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = PLACES.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists() and not PLACEHOLDER.search(path)] == []


@pytest.mark.parametrize("page", ON_MODULES, ids=documents.name)
def test_parts_of_paths_that_a_page_names_exist(page: Path) -> None:
    paths = [path.as_posix() for path in (ROOT / "syno").rglob("*")]
    named = {part.rstrip("/") for part in PARTS.findall(page.read_text(encoding="utf-8")) if not PLACEHOLDER.search(part)}
    missing = {part for part in named if not any(path.endswith(f"/{part}") for path in paths)}
    assert [part for part in sorted(missing) if not (ROOT / part).exists()] == []


def test_modules_and_functions_that_pages_and_docstrings_name_exist() -> None:
    missing = []
    for file in (*PAGES, *SOURCES):
        for name in sorted({*re.findall(r"`(syno(?:\.\w+)+)[`(]", file.read_text(encoding="utf-8"))} - NO_MODULES):
            try:
                resolve_name(name)
            except (ImportError, AttributeError):
                missing.append(f"{documents.name(file)}: {name}")
    assert missing == []


@pytest.mark.parametrize("page", HOW_TO, ids=documents.name)
def test_settings_in_a_guide_are_those_of_experiments(page: Path) -> None:
    options = options_table(Experiment)
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for name, value in yaml.safe_load(block).items():
            assert name in Experiment.model_fields
            assert all(re.search(rf"`{name}(: {key})?`", options) for key in value), (name, value)


def test_links_to_files_lead_to_their_pages() -> None:
    page = ROOT / "docs" / "page.md"
    text = "[a](../config/paper.yaml) [b](../examples/) [c](space.md#a-spec) [d](../envs) `x`\n```\n[e](../Makefile)\n```\n"
    assert files.linked(text, page, ROOT) == (
        "[a](repository:config/paper.yaml) [b](../examples/README.md) [c](space.md#a-spec) [d](repository:envs) `x`\n"
        "```\n[e](../Makefile)\n```\n"
    )


def test_names_in_prose_are_links_and_those_in_headings_and_code_are_not() -> None:
    text = "# `syno.plan`\n`syno.plan` `syno.nothing` [`syno.plan`](x)\n```\n`syno.plan`\n```\n"
    linked = "# `syno.plan`\n{py:obj}`syno.plan <syno.plan>` `syno.nothing` [`syno.plan`](x)\n```\n`syno.plan`\n```\n"
    assert names.linked(text, "docs/page") == linked


def test_the_table_of_compilers_has_every_compiler() -> None:
    from syno.measure.compilers import COMPILERS, Compiler

    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    table = page[page.index("### Compilers") : page.index("### A compiler of your own")]
    functions = {name: one.compile if isinstance(one, Compiler) else one for name, one in COMPILERS.items()}
    own = [name for name, one in functions.items() if one.__module__.startswith("syno.")]  # other tests register theirs
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == own


def test_a_flow_chart_has_a_box_for_each_name_and_a_line_for_each_arrow() -> None:
    drawn = flow_chart.completed("```mermaid\nflowchart LR\n  a --> b --> c\n  a -. again .-> c\n```\n")
    assert drawn.count("<rect ") == 3 and drawn.count('class="head"') == 3 and "mermaid" not in drawn


@pytest.mark.slow
def test_the_gallery_has_every_known_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno.ir.library import OPERATORS

    monkeypatch.delenv(gallery.ARTIFACT, raising=False)
    text = gallery.completed("# Page\n\n<!-- gallery: known -->\n\n<!-- gallery: published -->\n")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == list(OPERATORS)
    assert text.count("<svg ") == len(OPERATORS) and "make docs" in text


def test_the_gallery_says_how_to_get_operators_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gallery.ARTIFACT, str(tmp_path / "nowhere"))
    monkeypatch.setattr(gallery, "ROOT", tmp_path)
    text = gallery.completed("<!-- gallery: published -->\n\n<!-- gallery: quickstart -->\n")
    assert "SYNO_ARTIFACT=<its data folder> make docs" in text and "make demo docs" in text


def test_the_gallery_has_the_published_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gallery.ARTIFACT, str(write_artifact(tmp_path)))
    text = gallery.completed("<!-- gallery: published -->\n")
    drawn = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert "operator_1" in drawn and text.count("<svg ") == len(drawn) - ("Without a graph" in drawn)
    assert "| network" in text and "class Operator1(nn.Module)" in text


def shown(what: str, docstring: str) -> str:
    lines = docstring.splitlines()
    docstrings.shown(None, what, "name", None, None, lines)
    return "\n".join(lines)


def test_code_in_docstrings_is_literal_and_names_are_looked_up() -> None:
    given = "Return `x + 1`, as `syno.plan` does.\n\nArgs:\n    x: see `None`.\n\nRaises SpecError if `x` is 0."
    assert shown("function", given) == (
        "Return ``x + 1``, as `syno.plan` does.\n\nArgs:\n    x: see `None`.\n\nRaises :py:exc:`.SpecError` if `x` is 0."
    )


def test_an_example_in_a_docstring_gets_a_heading_and_is_not_changed() -> None:
    given = "Do it.\n\n>>> f('`x`')\nSpecError\n>>> g()\n\nMore."
    assert shown("function", given) == "Do it.\n\n.. rubric:: Example\n\n>>> f('`x`')\nSpecError\n>>> g()\n\nMore."


def test_a_colon_in_a_property_s_docstring_separates_no_type() -> None:
    assert shown("property", "The top: all of it.") == "..\n\nThe top: all of it."


def test_attributes_that_share_a_line_are_one_name() -> None:
    assert shown("class", "Attributes:\n    a, b: two.\n\nArgs:\n    c, d: two.") == (
        "Attributes:\n    a,b: two.\n\nArgs:\n    c, d: two."
    )

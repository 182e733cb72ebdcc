"""The documentation shows what happens: every example in it is run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import documents
import pytest
from documents import PAGES, ROOT
from quick_cases import quick_cases

from syno.ir.primitives import TABLE


@pytest.mark.parametrize("page", quick_cases(PAGES, lambda page: page == PAGES[0]), ids=documents.name)
def test_examples_print_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner().run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for path, anchor in documents.links(page):
            target = page.parent / path if path else page
            assert target.exists(), f"{documents.name(page)}: {path}"
            assert not anchor or anchor in documents.anchors(target), f"{documents.name(page)}: {path}#{anchor}"


def test_the_language_page_shows_table_1_as_it_is_in_code() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    for row in TABLE.values():
        assert f"| {row.name} | `{row.rule}` | {row.meaning} |" in page

"""The documentation site: it is built without a warning and without a network, and needs none to be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from built_site import Site, build
from documents import PAGES, ROOT

import syno

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site, built once for all tests."""
    folder = tmp_path_factory.mktemp("documentation")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return Site(folder / "site")


def test_the_build_leaves_no_file_beside_the_pages(site: Site) -> None:
    assert not (ROOT / "docs" / "_build").exists() and not list((ROOT / "docs").rglob("*.doctree"))


def test_no_page_loads_anything_from_another_host(site: Site) -> None:
    assert list(site.loaded_from_elsewhere()) == []


def test_every_link_within_the_site_leads_somewhere(site: Site) -> None:
    assert list(site.broken()) == []


def test_every_page_of_the_repository_is_in_the_site(site: Site) -> None:
    expected = {(site.folder / page.relative_to(ROOT).with_suffix(".html")).resolve() for page in PAGES}
    assert expected <= set(site.pages)


def test_every_public_name_has_an_entry_that_can_be_linked_to(site: Site) -> None:
    ids = {one for page in site.pages.values() if page.file.parent.name == "api" for one in page.ids}
    assert {f"syno.{name}" for name in syno.__all__} - ids - {"syno.plot"} == set()
    assert {f"syno.plot.{name}" for name in syno.plot.__all__} <= ids


def test_the_search_finds_names(site: Site) -> None:
    index = (Path(site.folder) / "searchindex.js").read_text(encoding="utf-8")
    assert "spec_for" in index and "docs/commands" in index

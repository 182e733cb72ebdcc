"""The documentation site: it is built without a warning and without a network, and needs none to be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from built_site import Site, build
from documents import PAGES, ROOT

import syno


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    """One test, since tests that run at the same time would each build the site, which takes a minute."""
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    site = Site(tmp_path / "site")
    assert list(site.loaded_from_elsewhere()) == []
    assert list(site.broken()) == []
    assert (site.folder / "index.html").exists()
    expected = {(site.folder / page.relative_to(ROOT).with_suffix(".html")).resolve() for page in PAGES}
    assert expected <= set(site.pages)
    ids = {one for page in site.pages.values() if page.file.parent.name == "api" for one in page.ids}
    names = [f"syno.{name}" for name in syno.__all__ if name != "plot"] + [f"syno.plot.{name}" for name in syno.plot.__all__]
    assert set(names) <= ids
    index = (site.folder / "searchindex.js").read_text(encoding="utf-8")
    assert "spec_for" in index and "docs/commands" in index


def test_links_of_a_site_are_checked(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text(
        '<h1 id="top">One</h1><a href="#top">a</a><a href="#end">b</a><a href="two.html#top">c</a><a href="three.html">d</a>'
        '<a href="https://example.org/">e</a><img src="//example.org/x.png"><link rel="stylesheet" href="https://example.org/x.css">'
    )
    (tmp_path / "two.html").write_text("<h1>Two</h1>")
    (tmp_path / "a.css").write_text('@import "https://example.org/b.css"; a {background: url(data:image/png;base64,x)}')
    site = Site(tmp_path)
    assert len(list(site.broken())) == 3
    assert len(list(site.loaded_from_elsewhere())) == 3

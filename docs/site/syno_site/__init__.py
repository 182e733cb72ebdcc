"""The Sphinx extension of the documentation site: navigation, links to files, the gallery of operators.

The pages stay plain Markdown. What a page does not hold itself is added to its text when Sphinx reads it: entries of the
navigation follow from its lists of links, links to files of the repository lead to pages that show them, marks such as
`<!-- gallery: known -->` become operators, and flow charts become pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syno.base.files import checksum
from syno_site import docstrings, files, flow_chart, gallery, names, navigation

ROOT = Path(__file__).parents[3]
SITE_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md", "docs/tutorial.ipynb", "examples/README.md",
              "examples/**/README.md")  # fmt: skip
START = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Syno</title>
<meta http-equiv="refresh" content="0; url=docs/index.html"></head>
<body><a href="docs/index.html">Syno</a></body></html>
"""


def setup(app: Any) -> dict[str, Any]:
    """Connect the parts of the extension to the events of the build."""
    docstrings.call_attributes_so()
    app.connect("source-read", _completed)
    app.connect("doctree-read", files.lead_to_pages, priority=400)
    app.connect("html-collect-pages", files.pages)
    app.connect("autodoc-process-docstring", docstrings.shown, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", docstrings.signature)
    app.connect("build-finished", _start)
    app.connect("env-get-outdated", _outdated)
    own = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    return {"env_version": int(checksum(own)[:7], 16), "parallel_read_safe": False, "parallel_write_safe": True}


def _outdated(app: Any, env: Any, *_: Any) -> list[str]:
    """Return the pages to read again in every build: those that show operators of other folders."""
    return [page for page in env.found_docs if page.startswith("docs/gallery/")]


def _completed(app: Any, page: str, content: list[str]) -> None:
    """Complete the text of a page, the only item of `content`."""
    file = Path(app.env.doc2path(page))
    if file.suffix != ".md":
        return
    text = flow_chart.completed(gallery.completed(content[0]))
    text = names.linked(navigation.completed(text, page), page)
    content[0] = files.linked(text, file, ROOT)


def _start(app: Any, error: Exception | None) -> None:
    """Write the page that leads to the first one."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "index.html").write_text(START, encoding="utf-8")

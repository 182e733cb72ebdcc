"""The navigation: it follows from the lists of links on the pages that list others, so that it is written once.

In such a page, each line that begins as a list item or a table row with a link to a page is an entry under the heading above.
"""

from __future__ import annotations

import re
from posixpath import join, normpath

LISTING = ("docs/index", "docs/api/index", "docs/gallery/index", "docs/measured/index", "examples/README")
_HEADING = re.compile(r"## (.*)")
_ENTRY = re.compile(r"(?:-|\|) \[([^]]+)\]\(([^)#]+)\)")


def entries(text: str, page: str) -> dict[str, dict[str, str]]:
    """Return the titles of the pages that a page lists, by heading and by the page's name without its ending."""
    found: dict[str, dict[str, str]] = {"": {}}
    heading = ""
    for line in text.splitlines():
        if title := _HEADING.match(line):
            heading = title[1]
        elif (entry := _ENTRY.match(line)) and (name := _page(entry[2], page)):
            known = any(name in pages for pages in found.values())
            if not known:
                found.setdefault(heading, {})[name] = entry[1].replace("`", "")
    return {heading: pages for heading, pages in found.items() if pages}


def _page(target: str, page: str) -> str:
    """Return the name of the page that a link leads to, from the root; "" if it is none."""
    if target.endswith("/"):
        target = f"{target}README.md"
    name, _, ending = target.rpartition(".")
    return normpath(join(page, "..", name)) if ending in ("md", "ipynb") else ""


def completed(text: str, page: str) -> str:
    """Return a page's text, followed by the navigation if it lists other pages."""
    if page not in LISTING:
        return text
    trees = []
    for heading, pages in entries(text, page).items():
        caption = [f":caption: {heading}"] if page == "docs/index" else []
        lines = [f"{title} </{name}>" for name, title in pages.items()]
        trees.append("\n".join(["```{toctree}", ":hidden:", *caption, "", *lines, "```"]))
    return "\n\n".join([text, *trees]) + "\n"

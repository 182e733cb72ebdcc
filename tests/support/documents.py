"""The documents of the repository, read for tests: their links and the anchors of their headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
SITE = ROOT / "docs" / "site"
_FENCED = re.compile(r"^ *(```+|~~~+).*?^ *\1", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    """The path of a page, from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text of a page without blocks of code."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """The relative links and pictures of a page: path and anchor."""
    without_code = re.sub(r"`[^`\n]*`", "code", prose(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code):
        if not re.match(r"\w+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    known: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{anchor}-{known[anchor]}" if known[anchor] else anchor)
        known[anchor] += 1
    return found

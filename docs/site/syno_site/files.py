"""Links to files of the repository that are no pages, such as programs and settings: each is shown on a page of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from posixpath import relpath
from typing import Any

from docutils import nodes

SCHEME = "repository"
FOLDER = "files"  # of these pages, in the site
LANGUAGES = {
    ".py": "python", ".yaml": "yaml", ".cff": "yaml", ".json": "json", ".toml": "toml", ".smk": "python", ".sh": "bash",
}  # fmt: skip
_FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)(\[(?:[^][]|\[[^][]*\])*\])\(([^)\s]+)\)")


def linked(text: str, file: Path, root: Path) -> str:
    """Return a page's text, in which links to folders lead to their README, and links to other files to their pages."""

    def target(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        place = (file.parent / path).resolve()
        if not path or re.match(r"\w+:", path) or not place.exists() or place.suffix in (".md", ".ipynb"):
            return match[0]
        if (place / "README.md").exists():
            return f"{match[1]}({relpath(place / 'README.md', file.parent)}{f'#{anchor}' if anchor else ''})"
        return f"{match[1]}({SCHEME}:{place.relative_to(root).as_posix()})"

    return outside_code(text, lambda part: _LINK.sub(target, part))


def outside_code(text: str, change: Any) -> str:
    """Return a page's text, whose parts outside of code blocks were changed by a function of them."""
    parts, end = [], 0
    for block in _FENCE.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def page_of(path: str) -> str:
    """Return the name of the page that shows a file or folder of the repository."""
    return f"{FOLDER}/{path}"


def lead_to_pages(app: Any, document: nodes.document) -> None:
    """Let links to files lead to the pages of these files."""
    shown: set[str] = app.env.__dict__.setdefault("syno_files", set())
    here = Path(app.env.docname).parent.as_posix()
    for link in document.findall(nodes.reference):
        scheme, _, path = str(link.get("refuri", "")).partition(":")
        if scheme == SCHEME:
            shown.add(path)
            link["refuri"] = f"{relpath(page_of(path), here)}.html"


def pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the pages of the linked files: name, content, and template."""
    for path in sorted(getattr(app.env, "syno_files", ())):
        place = Path(app.srcdir) / path
        shown = sorted(place.iterdir()) if place.is_dir() else [place]
        parts = [f"<h1>{escape(path)}</h1>"]
        for file in shown:
            if file.is_file() and not file.name.startswith("."):
                text = file.read_text(encoding="utf-8")
                language = LANGUAGES.get(file.suffix, "text")
                parts += [f"<h2>{escape(file.name)}</h2>"] if place.is_dir() else []
                parts.append(app.builder.highlighter.highlight_block(text, language, force=True))
        yield page_of(path), {"title": path, "body": "\n".join(parts)}, "page.html"

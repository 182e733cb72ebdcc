"""Names of `syno` in code on a page: each is a link to its entry in the reference."""

from __future__ import annotations

import re

import syno
from syno_site.files import outside_code

LISTED = "docs/api/index"  # where names need no `syno.` before them
_NAME = re.compile(rf"(?<![`\[])`(syno\.)?({'|'.join(syno.__all__)})(\.[a-z]\w*)?`(?![`\]])")


def linked(text: str, page: str) -> str:
    """Return a page's text in which names of `syno` are links. Headings stay as they are."""

    def link(match: re.Match[str]) -> str:
        if not match[1] and page != LISTED:
            return match[0]
        name = f"{match[2]}{match[3] or ''}"
        return f"{{py:obj}}`{match[1] or ''}{name} <syno.{name}>`"

    def line(text: str) -> str:
        return text if text.startswith("#") else _NAME.sub(link, text)

    return outside_code(text, lambda part: "\n".join(map(line, part.split("\n"))))

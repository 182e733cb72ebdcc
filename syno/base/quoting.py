"""Texts in source: as a docstring of Python, and as comments. Whatever the text is, the source does the same."""

from __future__ import annotations

import re

from syno.base.addresses import visible

CONTINUES = ("\\", "??/")  # ends of lines of C, after which a comment goes on


def docstring(text: str) -> str:
    r"""Return a text as a docstring, in quotes.

    >>> print(docstring('a network' + 3 * '"' + ' + secret()')[3:-3])
    a network\"\"" + secret()
    """
    quoted = re.sub(r'"(?="|\Z)', r"\"", visible(text).replace("\\", "\\\\"))
    return f'"""{quoted}"""'


def comment(text: str, mark: str = "#") -> str:
    r"""Return a text as a comment, each of whose lines begins with `mark`.

    >>> print(comment("a network\nint main() {}", "//"))
    // a network
    // int main() {}
    """
    lines = (f"{mark} {line}".rstrip() for line in visible(text).splitlines())
    return "\n".join(f"{line} ." if line.endswith(CONTINUES) else line for line in lines)

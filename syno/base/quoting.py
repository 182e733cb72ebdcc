"""Quoting of arbitrary text in generated source: as a Python docstring and as comments.

No text can change what the source does.
"""

from __future__ import annotations

import re

from syno.base.addresses import visible

CONTINUES = ("\\", "??/")  # line ends with which a comment of C continues in the next line


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

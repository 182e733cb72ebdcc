"""Texts in source: as a docstring of Python, and as comments. Whatever the text is, the source does the same."""

from __future__ import annotations

from syno.base.addresses import visible

CONTINUES = ("\\", "??/")  # ends of lines of C, after which a comment goes on


def docstring(text: str) -> str:
    r"""Return a text as a docstring, in quotes.

    >>> print(docstring('a network' + 3 * '"' + ' + secret()')[3:-3])
    a network\"\"\" + secret()
    """
    quoted = visible(text).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    if quoted.endswith('"'):
        quoted = f'{quoted[:-1]}\\"'
    return f'"""{quoted}"""'


def comment(text: str, mark: str = "#") -> str:
    r"""Return a text as a comment, each of whose lines begins with `mark`.

    >>> print(comment("a network\nint main() {}", "//"))
    // a network
    // int main() {}
    """
    lines = (f"{mark} {line}".rstrip() for line in visible(text).splitlines())
    return "\n".join(f"{line} ." if line.endswith(CONTINUES) else line for line in lines)

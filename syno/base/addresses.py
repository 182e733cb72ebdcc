"""Sanitized texts: addresses without passwords, and no control characters that could hide other text.

Files may come from strangers: `cleaned` makes all texts of a record or a table safe to display.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"  # in place of a password
LONGEST, LONGEST_MESSAGE = 2_000, 4_000  # characters of a text from a file, other than an operator's
MESSAGE = "message"  # name of a field or column whose texts may have several lines
OPERATORS = {"operator", "mixture"}  # names of fields and columns that may have an operator's text, which has several lines
BEGINNINGS = (
    "operator ",
    "mixture ",
    "module ",
    "network ",
    "known layer ",
)  # beginnings of an operator's text; its parser has limits of its own
# Control characters but tabs and ends of lines, such as NUL and the escape of terminals; formats, such as U+202E, which turns
# the direction of what follows; halves of characters, which cannot be written; separators of lines and paragraphs.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_OF_USER = re.compile(r"(://[^:/?#@\s]*):[^@\s]+@")  # before the host; `@` in a password is written as %40
_AS_OPTION = re.compile(r"([?&]\w*password=)[^&#\s\"']+", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """Return a text without the passwords in its addresses.

    >>> without_passwords("postgresql://user:secret@host/trials")
    'postgresql://user:***@host/trials'
    >>> without_passwords("postgresql://user@host/trials?sslpassword=secret&application_name=a")
    'postgresql://user@host/trials?sslpassword=***&application_name=a'
    """
    return _AS_OPTION.sub(rf"\1{HIDDEN}", _OF_USER.sub(rf"\1:{HIDDEN}@", text))


def visible(text: str) -> str:
    r"""Return a text with its control characters as escapes; tabs and line ends stay.

    >>> visible("conv\x00 \u202etxt.exe")
    'conv\\x00 \\u202etxt.exe'
    """
    if text.replace("\n", "").replace("\t", "").isprintable():  # much faster than the pattern
        return text
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def cleaned(content: Any, name: object = None) -> Any:
    r"""Return plain values in which each text, and each name in a mapping, is `visible` and a single line.

    >>> cleaned({"reason": ["it\x1b[2J\nfailed", 3], "operator": "operator x\n..."})
    {'reason': ['it\\x1b[2J failed', 3], 'operator': 'operator x\n...'}

    Args:
        content: values, as of JSON.
        name: the field or column of the values. Texts of operators and messages keep their lines.
    """
    if isinstance(content, str):
        shown = visible(content)
        if name in OPERATORS and shown.startswith(BEGINNINGS):
            return shown
        if name == MESSAGE:
            return shown[:LONGEST_MESSAGE]
        shown = " ".join(shown.split()) if "\n" in shown or "\t" in shown else shown
        return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."
    if isinstance(content, Mapping):
        return {cleaned(key): cleaned(value, key) for key, value in content.items()}
    if isinstance(content, tuple):
        return tuple(cleaned(element, name) for element in content)
    return [cleaned(element, name) for element in content] if isinstance(content, list) else content

"""Texts as they are shown: without the passwords in addresses of databases, and without characters that hide other text."""

from __future__ import annotations

import re
import unicodedata

HIDDEN = "***"  # in place of a password
# Control characters, such as NUL and the escape of terminals; formats, such as U+202E, which turns the direction of what
# follows; halves of characters, which cannot be written; separators of lines and paragraphs.
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
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
    r"""Return a text whose control characters, but for tabs and ends of lines, are shown as escapes.

    >>> visible("conv\x00 \u202etxt.exe")
    'conv\\x00 \\u202etxt.exe'
    """
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if one not in "\n\t" and unicodedata.category(one) in _INVISIBLE else one
        for one in text
    )

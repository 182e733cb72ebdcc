"""Addresses of databases in texts: passwords in them are never shown."""

from __future__ import annotations

import re

HIDDEN = "***"  # in place of a password
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

"""The check of names that become file names and words of shell commands: names of operators, experiments and studies."""

from __future__ import annotations

import re

from syno.errors import SpecError

LONGEST_NAME = 100  # characters; file systems take 255, of which endings such as "-inductor-cpu.json" need some
PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"


def check_name(given: str, what: str) -> str:
    """Return `given` if it can be the name of a file; `what` says in messages what it names, such as "an operator's name".

    Allowed are ASCII letters, digits, "_", "-" and "."; the first character is a letter, a digit or "_"; the length is at most
    100 characters. Such a name is one part of a path on every system, no option of a command, and nothing that a shell expands.

    Raises SpecError otherwise.
    """
    if len(given) > LONGEST_NAME:
        raise SpecError(f'{what} has {len(given)} characters ("{given[:20]}..."); at most {LONGEST_NAME} are allowed')
    if not re.fullmatch(PATTERN, given):
        raise SpecError(
            f'{what} is {given!r}; it has letters (a to z), digits, "_", "-" and ".", and begins with a letter, a digit or "_"'
        )
    return given

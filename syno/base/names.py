"""Names of operators, experiments and studies: the check that they can be file names and words of shell commands."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from syno.base.errors import SpecError

ORIGINAL = "original"  # stands for the network as it is, wherever an operator can be named
LONGEST_NAME = 100  # characters; file systems take 255, of which endings such as "-inductor-cpu.json" need some
PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"


def check_name(given: str, what: str, longest: int = LONGEST_NAME) -> str:
    """Return `given` if it can be the name of a file; `what` says in messages what it names, such as "an operator's name".

    Allowed are ASCII letters, digits, "_", "-" and "."; the first character is a letter, a digit or "_"; the length is
    `longest` characters at most. Such a name is one part of a path on every system, no option of a command, and nothing that a
    shell expands.

    Raises SpecError otherwise.
    """
    if len(given) > longest:
        raise SpecError(f'{what} has {len(given)} characters ("{given[:20]}..."); at most {longest} are allowed')
    if not re.fullmatch(PATTERN, given):
        raise SpecError(
            f'{what} is {given!r}; it has letters (a to z), digits, "_", "-" and ".", and begins with a letter, a digit or "_"'
        )
    return given


def check_folder(given: Path, what: str) -> Path:
    """Return `given` if commands and the workflow can take it as a folder; `what` says in messages what it is.

    Spaces, quotes and signs such as "$" or ";" are allowed. Braces are not, in which Snakemake sees wildcards, nor characters
    that cannot be printed; and no folder begins with "-", as options of commands do.

    Raises SpecError otherwise.
    """
    text = str(given)
    if wrong := sorted({character for character in text if character in "{}" or not character.isprintable()}):
        raise SpecError(f"{what} is {text!r}, which has {', '.join(map(repr, wrong))} in it; give another folder")
    if text.startswith("-"):
        raise SpecError(f"{what} is {text!r}, which commands would read as an option; give another folder")
    return given


@lru_cache(maxsize=1024)
def name_from(given: str) -> str:
    """Return a name that `check_name` allows, as near to `given` as possible: "_" stands for every other character."""
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", given)[:LONGEST_NAME]
    return name if re.fullmatch(PATTERN, name) else f"_{name}"[:LONGEST_NAME]

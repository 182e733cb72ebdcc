"""Variables: the named symbolic sizes that sizes are made of.

Paper: section 5.1 (coordinate sizes).
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from enum import Enum

from syno.algebra.limits import MOST_NAME_CHARACTERS, shortened
from syno.base.errors import SizeError


class VariableKind(Enum):
    """Primary variables are large (channels, height); coefficients are small (kernel size, groups)."""

    PRIMARY = "primary"
    COEFFICIENT = "coefficient"

    def __repr__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Variable:
    """A named symbolic size, whose value a valuation defines."""

    name: str
    kind: VariableKind

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name) or keyword.iskeyword(self.name):
            raise SizeError(
                f'"{shortened(self.name)}" cannot name a variable: a name is a letter, then letters, digits or "_", '
                "and no Python keyword (generated code uses it)"
            )
        if (length := len(self.name)) > MOST_NAME_CHARACTERS:
            name = shortened(self.name, 20)
            raise SizeError(f'"{name}" cannot name a variable: it has {length} characters; at most {MOST_NAME_CHARACTERS}')

    def __hash__(self) -> int:  # hashes the name alone, for speed: searches look up sizes all the time
        return hash(self.name)

    @property
    def sort_key(self) -> tuple[bool, str]:
        """Sort key of a variable: primaries come first, and each kind is sorted by name."""
        return (self.kind is VariableKind.COEFFICIENT, self.name)

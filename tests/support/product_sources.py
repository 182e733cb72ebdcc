"""The parsed sources of the package, which several tests look through."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import syno

SYNO = Path(syno.__file__).parent


@cache
def trees() -> dict[str, ast.Module]:
    """Return the tree of each module by its path in the package. Parsing them takes seconds; not to be changed."""
    files = sorted(SYNO.rglob("*.py"))
    return {file.relative_to(SYNO).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}

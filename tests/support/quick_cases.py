"""Cases of a test, of which `make test` runs a few and `make slow` the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def quick_cases(cases: Iterable[Any], is_quick: Callable[[Any], bool]) -> list[Any]:
    """Return the cases for `pytest.mark.parametrize`, those that are not quick with the marker `slow`."""
    marked = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=() if is_quick(case) else pytest.mark.slow))
    return marked

"""Docstrings as the reference shows them: examples have a heading, and cross-references read single backticks as they are meant."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(?!_)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def shown(app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    """Write code in backticks that is no name as a literal, and put a heading above an example that has none."""
    result: list[str] = []
    is_example = False
    for line in lines:
        begins = line.startswith(">>> ")
        if begins and not is_example:
            result += [".. rubric:: Example", ""]
        is_example = begins or (is_example and bool(line.strip()))
        result.append(line if is_example else _CODE.sub(_marked, line))
    lines[:] = result


def _marked(match: re.Match[str]) -> str:
    return match[0] if _NAME.fullmatch(match[1]) else f"``{match[1]}``"

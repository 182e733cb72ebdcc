"""Docstrings and signatures as the reference shows them, from docstrings in the Google style with code in single backticks."""

from __future__ import annotations

import re
from typing import Any

from sphinx.domains.python import PyObject

from syno.base import errors

ERRORS = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, errors.SynoError)}
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(?!_)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_ERROR = re.compile(rf"(?<![`\w.])({'|'.join(ERRORS)})\b(?![`\w:])")
_SECTION_ENTRY = re.compile(r"\s+\w+(, ?\w+)*: ")
_SEVERAL = re.compile(r"(    )(\w+(?:, \w+)+): ")
_QUALIFIED = re.compile(r"~(?:\w+\.)+(\w+)")


def shown(app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    """Change a docstring's lines: an example has a heading, names of errors are links, code that is no name is a literal."""
    is_value = what in ("attribute", "property")
    result: list[str] = ["..", ""] if is_value else []  # a comment, so that text before a colon is not read as a type
    is_example = is_attribute = False
    for line in lines:
        if line.endswith(":") and not line.startswith(" "):
            is_attribute = line == "Attributes:"
        if is_attribute and (several := _SEVERAL.match(line)):  # Sphinx would read the first as a type
            line = f"{several[1]}{several[2].replace(', ', ',')}{line[several.end(2) :]}"
        begins = line.lstrip().startswith(">>> ")
        if begins and not is_example:
            result += [".. rubric:: Example", ""]
        is_example = begins or (is_example and bool(line.strip()))
        result.append(line if is_example else _marked(line))
    lines[:] = result


def _marked(line: str) -> str:
    entry = _SECTION_ENTRY.match(line)
    start = entry.end() if entry else 0
    text = _CODE.sub(lambda code: code[0] if _NAME.fullmatch(code[1]) else f"``{code[1]}``", line[start:])
    return line[:start] + _ERROR.sub(r":py:exc:`.\1`", text)


def signature(
    app: Any, what: str, name: str, thing: object, options: Any, given: str | None, returned: str | None
) -> tuple[str | None, str | None] | None:
    """Return the signature of a data class with short names of types, which can be parsed."""
    if given is None or "~" not in given:
        return None
    return _QUALIFIED.sub(r"\1", given).replace("<factory>", "..."), returned


def call_attributes_so() -> None:
    """Show the attributes of a class under this name; Sphinx calls them variables."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"

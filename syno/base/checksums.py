"""Checksums in files: a file that was damaged after it was written is an error, and never other content.

A JSON file has its checksum as a field, the last one, over everything else in it, whatever its spaces and the order of its
fields. Other files have it where their kind allows; this module computes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic_core import from_json

FIELD = "checksum"
DIGITS = 32  # hexadecimal, of 128 bits


def checksum(*parts: bytes | memoryview) -> str:
    """Return 128 bits over the bytes of all parts, as 32 hexadecimal digits."""
    state = blake2b(digest_size=DIGITS // 2)
    for part in parts:
        state.update(part)
    return state.hexdigest()


def json_with_checksum(content: Mapping[str, Any], indent: int | None = 1) -> str:
    """Return a mapping of plain values as JSON with its checksum, as text for a file; in one line if `indent` is None."""
    sealed = {**content, FIELD: _of_json(content)}
    return json.dumps(sealed, indent=indent, ensure_ascii=False) + "\n"


def read_json(file: Path) -> Any:
    """Return what is in a JSON file, without its checksum. A file of an earlier version, which has none, is read as it is.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is no JSON, or does not agree with its checksum. The message follows well on "FILE holds no record: ".
    """
    return parse_json(file.read_bytes())


def parse_json(text: bytes) -> Any:
    """Return what is in JSON, without its checksum. ValueError as `read_json`."""
    try:
        content = from_json(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if not isinstance(content, dict) or FIELD not in content:
        return content
    if content.pop(FIELD) != _of_json(content):
        raise ValueError(
            "it does not agree with its checksum, so it was damaged, or edited, after it was written (to keep an edit, remove "
            f'the field "{FIELD}" as well)'
        )
    return content


def _of_json(content: Mapping[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())

"""Checksums of what is stored with trials: a database sees a damaged page of its file, but not a changed letter in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from syno.base.files import checksum

CHECKSUM = "checksum"


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values and, under the key "checksum", their names and a checksum of them."""
    names = sorted(values)
    return {**values, CHECKSUM: {"of": names, "blake2b": _checksum(values, names)}}


def is_intact(stored: Mapping[str, Any]) -> bool:
    """Whether values are as `sealed` gave them; more may be beside them. True without a checksum, as in older studies."""
    seal = stored.get(CHECKSUM)
    if seal is None:
        return True
    try:
        return bool(_checksum(stored, seal["of"]) == seal["blake2b"])
    except (LookupError, TypeError):
        return False


def _checksum(values: Mapping[str, Any], names: Iterable[str]) -> str:
    text = json.dumps({name: values[name] for name in names}, sort_keys=True)
    return checksum(text.encode())

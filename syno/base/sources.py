"""Checksums of source files, which tell results of different development states of one version apart."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files

DIGITS = 8


@cache
def sources_checksum(*packages: str) -> str:
    """Return a checksum of all Python and C++ files in these packages and their subpackages.

    >>> sources_checksum("syno.lower") == sources_checksum("syno.lower"), len(sources_checksum("syno.lower"))
    (True, 8)
    """
    digest = blake2b(digest_size=DIGITS // 2)
    for package in packages:
        pending = [(package, files(package))]
        while pending:
            name, place = pending.pop()
            if place.is_dir() and not name.endswith("__pycache__"):
                pending += sorted(((f"{name}/{each.name}", each) for each in place.iterdir()), key=lambda pair: pair[0])
            elif name.endswith((".py", ".h", ".cpp")):
                digest.update(f"{name}\0".encode() + place.read_bytes())
    return digest.hexdigest()

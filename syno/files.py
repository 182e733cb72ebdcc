"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from syno.errors import SpecError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that nobody ever sees a part of it. SpecError if that is not possible there."""
    data = content.encode() if isinstance(content, str) else content
    with replaced(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of `path` at the end of the block. SpecError if that is not possible there.

    Whatever ends the block early leaves `path` as it was, and nothing beside it. Several processes may write it at once, on one
    machine or on several that share the folder: the last one to be ready has it.
    """
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SpecError(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def is_file(path: Path) -> bool:
    """Return whether a file is there; no for a path that the system refuses, such as one that is too long."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether a folder is there; no for a path that the system refuses, such as one that is too long."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False

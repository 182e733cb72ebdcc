"""Files that are there whole or not at all, also after a power loss."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from syno.base.errors import SpecError

# What file systems answer that cannot write a folder to the disk on request, such as some on a network.
FOLDERS_NOT_SYNCED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM})


def write_whole(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file so that nobody ever sees a part of it; see `replaced`. SpecError if that is not possible there."""
    data = content.encode() if isinstance(content, str) else content
    with replaced(path, durable=durable) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replaced(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a file to write, which takes the place of `path` at the end of the block.

    Whatever ends the block early leaves `path` as it was, and nothing beside it. Several processes may write it at once, on one
    machine or on several that share the folder: the last one to be ready has it.

    Args:
        path: the file; its folder is made if it is not there.
        durable: whether the file is on the disk, and in its folder, when the block has ended: after a power loss there is the
            old file or the new one, whole. It takes some 10 ms; leave it out for a file that is cheap to make again.

    Raises SpecError if the file cannot be written; its `__cause__` is the OSError, such as that of a full disk.
    """
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        made = _make_folder(path.parent)
        yield temporary
        if durable:
            _sync_file(temporary)
        temporary.replace(path)
        if durable:
            for folder in (path.parent, *made):
                _sync_folder(folder)
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


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and those that it is in; returns the folders in which there is a new one."""
    absent = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return [one.parent for one in absent]


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Write to the disk which files a folder has. File systems that cannot do so are left to their own order."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in FOLDERS_NOT_SYNCED:
            raise

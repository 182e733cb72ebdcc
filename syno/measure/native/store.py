"""The store of native kernels: files owned by the user, each with a checksum. Other files in it count as missing.

Libraries are machine code, which runs as soon as it is loaded. So a file is read only if it is owned by this user, is no link,
and is not writable by others; the same holds for its folder. A library ends with its checksum, behind the part that loaders
read; a JSON file contains its checksum. Damaged files, such as after a full disk, are made again with a warning.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from syno.base.errors import SpecError
from syno.base.files import CHECKSUM_FIELD, checksum, json_with_checksum, parse_json, write_whole

MARK = b"\nsyno checksum "  # before the checksum of a library's name and content, at its end
OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
Entry = TypeVar("Entry")


_SAID: set[Path] = set()  # files about which this process has warned


class StoreWarning(UserWarning):
    """A warning about a file in the store that is made again, with the reason."""


def make_store(folder: Path) -> Path:
    """Create the folder of a store, writable by this user only, and return it.

    Raises SpecError if it is owned by another user, or cannot be created or written.
    """
    advice = "give a folder of your own in the environment variable XDG_CACHE_HOME"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.geteuid():
            raise SpecError(f"the store of kernels {folder} is another user's, who could put any code in it: {advice}")
        if found.st_mode & OF_OTHERS:
            folder.chmod(stat.S_IMODE(found.st_mode) & ~OF_OTHERS)
    except OSError as error:
        raise SpecError(f"the store of kernels {folder} cannot be used: {error.strerror or error}; {advice}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SpecError(f"the store of kernels {folder} cannot be written: {advice}, or make it writable")
    return folder


def read_entry(file: Path, validated: Callable[[dict[str, Any]], Entry]) -> Entry | None:
    """Return the content of a JSON file, parsed by `validated`; None if it is missing, damaged, or of another user."""
    content = _own_content(file)
    if content is None:
        return None
    try:
        if CHECKSUM_FIELD.encode() not in content:
            raise ValueError("it has no checksum")
        return validated(parse_json(content))
    except (ValueError, TypeError, LookupError) as error:
        _made_again(file, _first_line(error))
        return None


def write_entry(file: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file with its checksum, for this user alone. Raises SpecError if it cannot be written."""
    write_whole(file, json_with_checksum(content, indent=None), mode=0o600)


def is_sealed(file: Path) -> bool:
    """Return whether a library is owned by this user and has a valid checksum, as `seal` wrote it. It is not loaded."""
    content = _own_content(file)
    if content is None:
        return False
    body, mark, given = content.rpartition(MARK)
    if mark and given == _checksum(file.name, body):
        return True
    _made_again(file, "it does not agree with its checksum, so it was damaged, or changed, after it was written")
    return False


def seal(library: Path, name: str) -> None:
    """Append the checksum of a library and of its later file name `name`, and make it accessible to this user only."""
    library.chmod(0o700)
    with library.open("r+b") as opened:
        opened.write(MARK + _checksum(name, opened.read()))


def _checksum(name: str, content: bytes) -> bytes:
    return checksum(name.encode(), b"\0", content).encode()


def _own_content(file: Path) -> bytes | None:
    """Return the content of a regular file that this user owns and others cannot write; else None."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _made_again(file, "it is a link" if file.is_symlink() else f"it cannot be opened: {error.strerror or error}")
        return None
    with os.fdopen(opened, "rb") as stream:
        found = os.fstat(opened)
        reasons = {
            "it is no regular file": not stat.S_ISREG(found.st_mode),
            "it is another user's": found.st_uid != os.geteuid(),
            "other users can write it": bool(found.st_mode & OF_OTHERS),
        }
        reason = next((reason for reason, is_so in reasons.items() if is_so), "")
        if not reason:
            try:
                return stream.read()
            except OSError as error:
                reason = f"it cannot be read: {error.strerror or error}"
    _made_again(file, reason)
    return None


def _made_again(file: Path, reason: str) -> None:
    if file in _SAID:
        return
    _SAID.add(file)
    warnings.warn(f"{file} is not used, and made again: {reason}", StoreWarning, stacklevel=3)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)

"""Files: valid names, atomic writing, and checksums of the content.

Reading a file that was damaged after it was written is an error. A JSON file has its checksum as its last field. It covers all
other fields, whatever the spaces and the order of the fields. Other files have a checksum where their format allows one.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from glob import escape as glob_escape
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from syno.base.errors import SpecError

ORIGINAL = "original"  # name of the unchanged network, in place of an operator's name
LONGEST_NAME = 100  # characters; file systems take 255, of which endings such as "-inductor-cpu.json" need some
PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"  # of names
CHECKSUM_FIELD = "checksum"
CHECKSUM_DIGITS = 32  # hexadecimal, of 128 bits
# errno values of file systems that do not support fsync of a folder, such as some network file systems.
FOLDERS_NOT_SYNCED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM})


def write_whole(path: Path, content: str | bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Write a file atomically: readers see the old content or the new one, never a part.

    Args:
        path: the file; its folder is made if it does not exist.
        content: the new content; text is written as UTF-8.
        durable: whether to flush the file to the disk, as for `replaced`.
        mode: the file's permissions, set before the content is written; None: the system's default.

    Raises SpecError if the file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with replaced(path, durable=durable) as temporary:
        if mode is not None:
            temporary.touch(mode)
            temporary.chmod(mode)  # touch does not change the mode of a file that a killed process left
        temporary.write_bytes(data)


@contextmanager
def replaced(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `path` at the end of the block.

    If an exception ends the block, `path` stays as it was and the temporary file is removed. Several processes, on one
    machine or on several that share the folder, may write the same path at once; the last one to finish wins.

    Args:
        path: the file; its folder is made if it does not exist.
        durable: whether to flush the file and its folder to the disk, so that a power loss leaves the old file or the new one,
            whole. This takes about 10 ms; turn it off for a file that is cheap to make again.

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


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary copy of `folder`; at the end of the block, its files replace those of `folder`.

    If an exception ends the block, `folder` stays as it was (it is not created if it did not exist). A new folder appears
    atomically. In an existing folder, files are replaced one by one; if one cannot be replaced, all are restored. Subfolders
    are not touched.

    Args:
        folder: the folder; its parent is made if it does not exist.

    Raises SpecError if the folder cannot be written.
    """
    place = folder.resolve()
    temporary = place.with_name(f".{place.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        _make_folder(place.parent)
        _remove_abandoned(place)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for file in _files(place):
            _link(file, temporary / file.name)
        yield temporary
        if place.is_dir():
            _exchange(temporary, place)
        else:
            temporary.rename(place)
        _sync_folder(place)
        _sync_folder(place.parent)
    except OSError as error:
        raise SpecError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []


def _link(file: Path, to: Path) -> None:
    """Hard-link a file, or copy it if the file system has no hard links."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copy2(file, to)


def _exchange(new: Path, folder: Path) -> None:
    """Replace the files of `folder` by those of the folder `new`; on failure, restore the old files."""
    before = new / ".files before"
    before.mkdir()
    had = {file.name for file in _files(folder)}
    for name in had:
        _link(folder / name, before / name)
    made = {file.name for file in _files(new)}
    try:
        for name in sorted(made):
            (new / name).replace(folder / name)
        for name in had - made:
            (folder / name).unlink()
    except BaseException:
        for name in made - had:
            (folder / name).unlink(missing_ok=True)
        for name in had:
            (before / name).replace(folder / name)
        raise


def _remove_abandoned(place: Path) -> None:
    """Delete temporary folders beside `place` that killed processes of this machine left behind."""
    start = f".{place.name}.{platform.node()}."
    for left in place.parent.glob(f"{glob_escape(start)}*.tmp"):
        process = left.name.removeprefix(start).removesuffix(".tmp")
        if left.is_dir() and process.isdecimal() and not _is_running(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a running process of another user
        return True
    return True


def is_file(path: Path) -> bool:
    """Return whether the file exists; False for a path that the system refuses, such as a path that is too long."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether the folder exists; False for a path that the system refuses, such as a path that is too long."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path lies in a folder after all symbolic links are resolved."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        return False


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder with its parents; return the folders that got a new entry, which must be flushed to the disk."""
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return [path.parent for path in absent]


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's list of files to the disk, where the file system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in FOLDERS_NOT_SYNCED:
            raise


def check_name(name: str, kind: str, longest: int = LONGEST_NAME) -> str:
    """Return `name` if it can be the name of a file and a word of a shell command.

    Allowed are ASCII letters, digits, "_", "-" and "."; the first character is a letter, a digit or "_". Such a name is one
    part of a path on every system, is never read as an option, and contains nothing that a shell expands.

    Args:
        name: the name.
        kind: what it names, for messages, such as "an operator's name".
        longest: the most characters allowed.

    Raises SpecError if it cannot.
    """
    if len(name) > longest:
        raise SpecError(f'{kind} has {len(name)} characters ("{name[:20]}..."); at most {longest} are allowed')
    if not re.fullmatch(PATTERN, name):
        raise SpecError(
            f'{kind} is {name!r}; it has letters (a to z), digits, "_", "-" and ".", and begins with a letter, a digit or "_"'
        )
    return name


def check_folder(folder: Path, kind: str) -> Path:
    """Return `folder` if commands and the workflow can use it as a folder.

    Spaces, quotes and characters such as "$" or ";" are allowed. Braces are not, because Snakemake reads them as wildcards, nor
    are unprintable characters, nor "-" at the beginning, which commands read as an option.

    Raises SpecError, whose message calls the folder `kind`, if it cannot.
    """
    text = str(folder)
    if wrong := sorted({character for character in text if character in "{}" or not character.isprintable()}):
        raise SpecError(f"{kind} is {text!r}, which has {', '.join(map(repr, wrong))} in it; give another folder")
    if text.startswith("-"):
        raise SpecError(f"{kind} is {text!r}, which commands would read as an option; give another folder")
    return folder


@lru_cache(maxsize=1024)
def name_from(text: str) -> str:
    """Return a name that `check_name` allows: `text` with "_" for every character that is not allowed."""
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", text)[:LONGEST_NAME]
    return name if re.fullmatch(PATTERN, name) else f"_{name}"[:LONGEST_NAME]


def checksum(*parts: bytes | memoryview) -> str:
    """Return the checksum of the bytes of all parts: 128 bits of blake2b as 32 hexadecimal digits."""
    state = blake2b(digest_size=CHECKSUM_DIGITS // 2)
    for part in parts:
        state.update(part)
    return state.hexdigest()


def json_with_checksum(content: Mapping[str, Any], indent: int | None = 1) -> str:
    """Return a mapping of plain values as JSON text with its checksum; in one line if `indent` is None."""
    sealed = {**content, CHECKSUM_FIELD: _of_json(content)}
    return json.dumps(sealed, indent=indent, ensure_ascii=False) + "\n"


def read_json(file: Path) -> Any:
    """Return the content of a JSON file, without its checksum. A file without a checksum, as after an edit, is read too.

    Raises:
        OSError: the file does not exist or cannot be read.
        ValueError: it is not JSON, or does not agree with its checksum. The message continues "FILE holds no record: ".
    """
    return parse_json(file.read_bytes())


def parse_json(text: bytes) -> Any:
    """Return the content of JSON text, without its checksum. Raises ValueError as `read_json` does."""
    try:
        content = from_json(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(content, dict) or CHECKSUM_FIELD not in content:
        return content
    if content.pop(CHECKSUM_FIELD) != _of_json(content):
        raise ValueError(
            "it does not agree with its checksum, so it was damaged, or edited, after it was written (to keep an edit, remove "
            f'the field "{CHECKSUM_FIELD}" as well)'
        )
    return content


def _of_json(content: Mapping[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())

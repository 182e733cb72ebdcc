"""Calls of functions that are the user's own: what they raise becomes one message that names the line in the user's file.

>>> def make(*, classes): return classes[0]
>>> check_arguments(make, "the model", {"width": 1.0})
Traceback (most recent call last):
...
syno.base.errors.UserCodeError: the model is called with width=1.0, but make(*, classes): missing a required argument: 'classes'
"""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import TracebackType
from typing import Any

from syno.base.errors import SynoError, UserCodeError

OWN = Path(__file__).parents[1]  # the package syno
INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
OF_PACKAGES = frozenset({"site-packages", "dist-packages"})  # names of folders
LONGEST_REASON = 500  # characters of what an exception says
# What has nothing to do with the code that was called; whoever runs it knows what to do.
OF_THE_MACHINE = ("OutOfMemoryError", "MemoryError")


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Run the user's own code in the block; an exception that it raises becomes a UserCodeError.

    Args:
        what: was called, as a message begins, such as 'the model "my_network:make"'.

    Raises UserCodeError, with the exception as its cause. A SynoError and a lack of memory are raised as they are.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, SynoError) or type(error).__name__ in OF_THE_MACHINE:
            raise
        raise UserCodeError(f"{what} failed: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """The exception in words: its type, its message, and the last place in the user's files, if it passed one."""
    message = " ".join(str(error).split())
    if len(message) > LONGEST_REASON:
        message = f"{message[:LONGEST_REASON]} ..."
    place = last_own_line(error.__traceback__)
    at = "" if place is None else f" ({_shown(place.filename)}, line {place.lineno}, in {place.name}: {place.line})"
    return f"{type(error).__name__}{f': {message}' if message else ''}{at}"


def last_own_line(traceback: TracebackType | None) -> FrameSummary | None:
    """The innermost place of a traceback that lies in the user's own files; None if there is none."""
    return next((frame for frame in reversed(extract_tb(traceback)) if _is_the_users(frame.filename)), None)


def check_arguments(function: Callable[..., Any], what: str, given: Mapping[str, Any]) -> None:
    """Raise UserCodeError if this is no function that takes these keyword arguments; `what` says which function it is."""
    if not callable(function):
        raise UserCodeError(f"{what} is no function but {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C
        return
    try:
        signature.bind(**given)
    except TypeError as error:
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        name = getattr(function, "__name__", type(function).__name__)
        raise UserCodeError(f"{what} is called with {arguments or 'no arguments'}, but {name}{signature}: {error}") from None


def _is_the_users(filename: str) -> bool:
    path = Path(filename)
    return path.is_file() and not is_installed(path)


def is_installed(file: Path) -> bool:
    """Return whether a file is of Syno, of Python or of an installed package, and not the user's own."""
    in_another = not OF_PACKAGES.isdisjoint(file.parts)  # environments may be layered on others
    return in_another or any(file.is_relative_to(folder) for folder in (OWN, *INSTALLED))


def _shown(filename: str) -> str:
    """The path from the folder where the command runs, if it lies in there."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

"""Registries: tables of named entries, such as policies or compilers.

Users name their own entries by a path `package.module:name`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, TypeVar

from syno.base.errors import RunsCodeError, SpecError, SynoError, UnknownNameError, UserCodeError, suggestion
from syno.base.extensions import load_extensions
from syno.base.user_code import reason_of, unchanged_process

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A registry of entries of one kind, filled by a decorator. A user's own entry is imported by its path.

    Args:
        kind: noun for an entry in messages, such as "policy".
        accepts: returns whether an imported object can be an entry; by default every object can.
        needed: the requirement that `accepts` checks, for messages, such as "a subclass of Policy".

    >>> shapes: Registry[Callable[[], int]] = Registry("shape")
    >>> @shapes.register("square")
    ... def square() -> int: return 4
    >>> shapes["square"]()
    4
    >>> shapes
    <1 shape: square>
    """

    def __init__(self, kind: str, *, accepts: Callable[[Any], bool] = lambda _: True, needed: str = "") -> None:
        self.kind = kind
        self._accepts = accepts
        self._needed = needed
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register the decorated object under `name`. Raises ValueError if the name is taken."""

        def enter(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f'{self.kind} "{name}" is registered already')
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            load_extensions()
        try:
            return self._entries[name]
        except KeyError:
            allowed = ", ".join(self._entries)
            hint = suggestion(name, self._entries)
            raise UnknownNameError(f'unknown {self.kind} "{name}"; there are: {allowed}.{hint}') from None

    def find(self, name: str) -> T:
        """Return the entry of this name, or import the user's own from its path `package.module:name`.

        Raises UnknownNameError if `name` is neither, SpecError if the object cannot be imported or is no entry of this kind.
        """
        if name in self._entries:
            return self._entries[name]
        self.check(name)
        entry: T = imported(name, self.kind)
        if not self._accepts(entry):
            raise SpecError(f'the {self.kind} is "{name}", which is {entry!r}; it must be {self._needed}')
        return entry

    def check(self, name: str) -> None:
        """Raise UnknownNameError if `name` is neither registered nor a path, SpecError if it is a malformed path.

        Imports nothing, so that readers of results do not run user code.
        """
        if is_path(name):
            check_path(name, self.kind)
        elif name not in self._entries:
            try:
                self[name]
            except UnknownNameError as error:
                raise UnknownNameError(f'{error} Your own is "package.module:name"') from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # does not load extensions, which each unknown name would do

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        count = len(self._entries)
        return f"<{count} {self.kind if count == 1 else plural(self.kind)}: {', '.join(self._entries)}>"


def plural(kind: str) -> str:
    """Return the plural of a noun for entries: in "curve of milestones", the word before "of" is changed."""
    noun, of, rest = kind.partition(" of ")
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        noun = f"{noun[:-1]}ie"
    return f"{noun}s{of}{rest}"


NAME = r"[^\W\d]\w*"
PATH = re.compile(rf"{NAME}(?:\.{NAME})*:{NAME}")  # package.module:name
_CODE_FOLDERS: list[str] = []  # the last added first


def search_code_in(folder: Path) -> None:
    """Add a folder to the import path of user code, before the working directory and folders that were added earlier.

    The folder comes first in `sys.path`, which compiling and measuring processes inherit. Does nothing within `reading_only`:
    there, `imported` raises, since a stranger's `json.py` on the path would be run.
    """
    if _ONLY_READS.get():
        return
    path = str(folder.absolute())
    for folders in (_CODE_FOLDERS, sys.path):
        if path in folders:
            folders.remove(path)
        folders.insert(0, path)


def _prepare_import(module: str) -> None:
    """Put the working directory on the import path, and unload a module of this name that came from another folder."""
    here, top = str(Path.cwd()), module.partition(".")[0]
    if here not in sys.path:
        sys.path.insert(len(_CODE_FOLDERS), here)
    file_here = next((file for folder in (*_CODE_FOLDERS, here) if (file := _file_in(folder, top))), None)
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if file_here is None or loaded is None or loaded == file_here:
        return
    other = next((folder for folder in _CODE_FOLDERS if loaded == _file_in(folder, top)), None)
    if other is not None:
        for name in [name for name, loaded_module in sys.modules.items() if _lies_in(loaded_module, other)]:
            del sys.modules[name]
        importlib.invalidate_caches()


def _lies_in(module: object, folder: str) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(folder + os.sep)


def _file_in(folder: str, module: str) -> str | None:
    """Return the file of a module or package in a folder; None if the folder lacks it."""
    candidates = (Path(folder, f"{module}.py"), Path(folder, module, "__init__.py"))
    return next((str(file) for file in candidates if file.is_file()), None)


def is_path(name: str) -> bool:
    """Return whether a name is the path `package.module:name` of a user's own object."""
    return ":" in name


def own_paths(value: object) -> Iterator[str]:
    """Yield all paths `package.module:name` in a value, such as settings.

    A text of several lines is an operator, in which `d3:H` is a dim with its size, so it is skipped.
    """
    if isinstance(value, str):
        if "\n" not in value:
            yield from (part.strip() for part in value.split(",") if PATH.fullmatch(part.strip()))
    elif isinstance(value, Mapping):
        for element in value.values():
            yield from own_paths(element)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from own_paths(element)


def check_path(path: str, kind: str) -> tuple[str, str]:
    """Split a path `package.module:name` into module and name, without importing it.

    Raises SpecError if it has another form; `kind` says what the path must name, for messages.
    """
    module, _, name = path.partition(":")
    if not PATH.fullmatch(path):
        raise SpecError(f'the {kind} is "{path}"; it must be something that can be imported, "package.module:name"')
    return module, name


def code_file(path: str, code: Path | None = None) -> Path | None:
    """Return the file from which `imported` would load the module of a path, or its outermost package, without importing it.

    None if there is no such file, as for built-in modules. `code` is a folder that is searched before all others.
    """
    top = path.partition(":")[0].partition(".")[0]
    folders = ([] if code is None else [str(code)]) + [*_CODE_FOLDERS, str(Path.cwd()), *sys.path]
    return next((Path(file) for folder in folders if (file := _file_in(folder, top))), None)


OWN_PACKAGE = "syno."  # baselines of Syno are named by paths, too
_ONLY_READS: ContextVar[str] = ContextVar("only_reads", default="")  # the command that only reads; "" if user code may run


def only_read(reader: str) -> None:
    """Forbid imports of user code in this context, from now on. `reader` is the command, for the message of the RunsCodeError.

    Results of strangers name code. Commands that only read results must not run it.
    """
    _ONLY_READS.set(reader)


@contextmanager
def reading_only(reader: str) -> Iterator[None]:
    """Forbid imports of user code in the block; see `only_read`."""
    token = _ONLY_READS.set(reader)
    try:
        yield
    finally:
        _ONLY_READS.reset(token)


def imported(path: str, kind: str) -> Any:
    """Import the object at the path `package.module:name`, also from an experiment's folder or the working directory.

    Args:
        path: the path.
        kind: what the object must be, for messages.

    Raises SpecError if `path` is malformed or cannot be imported, RunsCodeError within `reading_only`.
    """
    module, name = check_path(path, kind)
    reader = _ONLY_READS.get()
    if reader and not module.startswith(OWN_PACKAGE):
        raise RunsCodeError(
            f'the {kind} is "{path}", which would have to be imported; {reader} only reads, and runs no such code'
        )
    _prepare_import(module)
    try:
        with unchanged_process(
            environment=False
        ):  # variables that the module sets may be read later by packages that it imports
            value = importlib.import_module(module)
    except ImportError as error:
        raise SpecError(f'the {kind} is "{path}", which cannot be imported: {error}') from error
    except SynoError:
        raise
    except Exception as error:  # raised by the module's code, which runs on import
        raise UserCodeError(f'the {kind} is "{path}", and {module} fails as it is imported: {reason_of(error)}') from error
    try:
        return getattr(value, name)
    except AttributeError:
        there = [other for other in vars(value) if not other.startswith("_")]
        raise SpecError(
            f'the {kind} is "{path}", but {module} ({value.__file__}) has no "{name}".{suggestion(name, there)}'
        ) from None

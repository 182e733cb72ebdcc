"""Tables of named things, such as policies or compilers, to which a user adds by a path `package.module:name`."""

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
    """A table of named things of one kind, filled by decoration. A user's own thing is found by its path.

    Args:
        kind: what an entry is, for messages.
        accepts: returns whether a thing found by a path can be an entry; by default everything can.
        needed: what such a thing must be, for messages, such as "a subclass of Policy".

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
        """Enter the decorated thing under `name`. A name is given once."""

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
        """Return an entry by its name, or the user's own thing by its path `package.module:name`.

        Raises UnknownNameError if `name` is neither, SpecError if it cannot be imported or is nothing of this kind.
        """
        if name in self._entries:
            return self._entries[name]
        self.check(name)
        found: T = imported(name, self.kind)
        if not self._accepts(found):
            raise SpecError(f'the {self.kind} is "{name}", which is {found!r}; it must be {self._needed}')
        return found

    def check(self, name: str) -> None:
        """Raise UnknownNameError if `name` is neither a name here nor a path, SpecError if it is no valid path.

        Nothing is imported: whoever only reads which policy or compiler it was does not run it.
        """
        if is_path(name):
            check_path(name, self.kind)
        elif name not in self._entries:
            try:
                self[name]
            except UnknownNameError as error:
                raise UnknownNameError(f'{error} Your own is "package.module:name"') from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # without extensions: a word that is no name would load them each time

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        count = len(self._entries)
        return f"<{count} {self.kind if count == 1 else plural(self.kind)}: {', '.join(self._entries)}>"


def plural(kind: str) -> str:
    """Return the plural of what an entry is: of the noun before "of", as in "curves of milestones"."""
    noun, of, rest = kind.partition(" of ")
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        noun = f"{noun[:-1]}ie"
    return f"{noun}s{of}{rest}"


NAME = r"[^\W\d]\w*"
PATH = re.compile(rf"{NAME}(?:\.{NAME})*:{NAME}")  # package.module:name
_CODE_FOLDERS: list[str] = []  # the one that was given last comes first


def search_code_in(folder: Path) -> None:
    """Import modules of users from this folder, too: from now on, before the folder where the command runs and earlier ones.

    The folder comes first in `sys.path`, which processes that compile and measure get as well. Not within `reading_only`, where
    `imported` raises: a stranger's `json.py` on the path is code that runs, too.
    """
    if _ONLY_READS.get():
        return
    given = str(folder.absolute())
    for folders in (_CODE_FOLDERS, sys.path):
        if given in folders:
            folders.remove(given)
        folders.insert(0, given)


def _prepare_import(module: str) -> None:
    """Put the folder where the command runs on the import path, and forget another folder's module of the same name."""
    here, top = str(Path.cwd()), module.partition(".")[0]
    if here not in sys.path:
        sys.path.insert(len(_CODE_FOLDERS), here)
    found = next((file for folder in (*_CODE_FOLDERS, here) if (file := _file_in(folder, top))), None)
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if found is None or loaded is None or loaded == found:
        return
    other = next((folder for folder in _CODE_FOLDERS if loaded == _file_in(folder, top)), None)
    if other is not None:
        for name in [name for name, one in sys.modules.items() if _lies_in(one, other)]:
            del sys.modules[name]
        importlib.invalidate_caches()


def _lies_in(module: object, folder: str) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(folder + os.sep)


def _file_in(folder: str, module: str) -> str | None:
    """Return the file of a module or package in a folder; None if it has none."""
    found = (Path(folder, f"{module}.py"), Path(folder, module, "__init__.py"))
    return next((str(file) for file in found if file.is_file()), None)


def is_path(name: str) -> bool:
    """Return whether a name is the path of a user's own thing, `package.module:name`."""
    return ":" in name


def own_paths(value: object) -> Iterator[str]:
    """Yield all paths `package.module:name` in a value, such as settings.

    A text of several lines is an operator, in which `d3:H` is an axis with its size.
    """
    if isinstance(value, str):
        if "\n" not in value:
            yield from (part.strip() for part in value.split(",") if PATH.fullmatch(part.strip()))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from own_paths(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from own_paths(one)


def check_path(path: str, kind: str) -> tuple[str, str]:
    """Return the module and the name of a path `package.module:name`, without importing it.

    Raises SpecError if it has another form; `kind` is what the thing is to be.
    """
    module, _, name = path.partition(":")
    if not PATH.fullmatch(path):
        raise SpecError(f'the {kind} is "{path}"; it must be something that can be imported, "package.module:name"')
    return module, name


def code_file(path: str, code: Path | None = None) -> Path | None:
    """Return the file from which `imported` would take the module of a path, or its outermost package, without importing it.

    None if there is no such file, as of built-in modules. `code` is the folder that comes before all others.
    """
    top = path.partition(":")[0].partition(".")[0]
    folders = ([] if code is None else [str(code)]) + [*_CODE_FOLDERS, str(Path.cwd()), *sys.path]
    return next((Path(file) for folder in folders if (file := _file_in(folder, top))), None)


OWN_PACKAGE = "syno."  # whose baselines have paths, too
_ONLY_READS: ContextVar[str] = ContextVar("only_reads", default="")  # what only reads; "" while code may run


def only_read(reader: str) -> None:
    """Import nothing of a user's own from now on, in this context; `reader` only reads, for the message of the RunsCodeError.

    Results of strangers name code. What only reads them asks for none; this holds it to that.
    """
    _ONLY_READS.set(reader)


@contextmanager
def reading_only(reader: str) -> Iterator[None]:
    """Import nothing of a user's own in the block; see `only_read`."""
    token = _ONLY_READS.set(reader)
    try:
        yield
    finally:
        _ONLY_READS.reset(token)


def imported(path: str, kind: str) -> Any:
    """Import the thing at the path `package.module:name`, from an experiment's folder or the one where the command runs, too.

    Args:
        path: the path.
        kind: what the thing is to be, for messages.

    Raises SpecError if `path` is no such path or cannot be imported, RunsCodeError within `reading_only`.
    """
    module, name = check_path(path, kind)
    reader = _ONLY_READS.get()
    if reader and not module.startswith(OWN_PACKAGE):
        raise RunsCodeError(
            f'the {kind} is "{path}", which would have to be imported; {reader} only reads, and runs no such code'
        )
    _prepare_import(module)
    try:
        with unchanged_process(environment=False):  # packages that it imports may read the environment later
            found = importlib.import_module(module)
    except ImportError as error:
        raise SpecError(f'the {kind} is "{path}", which cannot be imported: {error}') from error
    except SynoError:
        raise
    except Exception as error:  # the module's own: it runs as it is imported
        raise UserCodeError(f'the {kind} is "{path}", and {module} fails as it is imported: {reason_of(error)}') from error
    try:
        return getattr(found, name)
    except AttributeError:
        there = [other for other in vars(found) if not other.startswith("_")]
        raise SpecError(
            f'the {kind} is "{path}", but {module} ({found.__file__}) has no "{name}".{suggestion(name, there)}'
        ) from None

"""Name -> callable tables whose errors list what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from syno.errors import UnknownNameError, suggestion

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A table of named things of one kind, filled by decoration.

    >>> shapes: Registry[Callable[[], int]] = Registry("shape")
    >>> @shapes.register("square")
    ... def square() -> int: return 4
    >>> shapes["square"]()
    4
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
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
        try:
            return self._entries[name]
        except KeyError:
            allowed = ", ".join(self._entries)
            hint = suggestion(name, self._entries)
            raise UnknownNameError(f'unknown {self.kind} "{name}"; there are: {allowed}.{hint}') from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

"""Random numbers that belong to names, not to an order of drawing.

A tree forgets steps once it knows them to be dead ends. From a generator that is drawn from once per step, all later steps
would then get other numbers. A number that belongs to a step's own id stays as it is, whatever else is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Independent uniform random numbers, one for each name.

    Equal keys give equal numbers in every process. `below` gives draws independent of these.
    """

    def __init__(self, *key: object) -> None:
        self._key = blake2b("\0".join(map(str, key)).encode(), digest_size=16).digest()

    def of(self, name: str) -> float:
        """The number that belongs to `name`, in [0, 1)."""
        digest = blake2b(name.encode(), key=self._key, digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)

    def below(self, name: str) -> Draws:
        """Draws for the part of the problem that `name` stands for."""
        return Draws(self._key.hex(), name)

    def order(self, items: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """The items shuffled. Leaving one out leaves the others in the same order."""
        return sorted(items, key=lambda item: (self.of(name(item)), name(item)))

    def generator(self) -> random.Random:
        """A generator, for draws that depend on nothing that may be forgotten."""
        return random.Random(self._key.hex())

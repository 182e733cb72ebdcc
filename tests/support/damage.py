"""Damage to files, drawn with a seed: what disks, power losses and careless programs do."""

from __future__ import annotations

import random
from collections.abc import Iterator


def flip(data: bytearray, rng: random.Random) -> None:
    """Change bits in up to four bytes."""
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)


def truncate(data: bytearray, rng: random.Random) -> None:
    """Cut off the end."""
    del data[rng.randrange(len(data)) :]


def zero(data: bytearray, rng: random.Random) -> None:
    """Set up to 2,000 bytes to zero."""
    start, size = rng.randrange(len(data)), rng.choice([1, 20, 500, 2000])
    data[start : start + size] = bytes(len(data[start : start + size]))


def swap(data: bytearray, rng: random.Random) -> None:
    """Exchange two pieces of the same size."""
    size = min(rng.choice([1, 8, 100, 512, 4096]), len(data) // 2 - 1)
    first, second = sorted(rng.sample(range(0, len(data) - size), 2))
    if second - first >= size:
        data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]


KINDS = {kind.__name__: kind for kind in (flip, truncate, zero, swap)}


def damaged(data: bytes, kind: str, seed: int) -> bytes:
    """Return the data with damage of one kind, the same for the same seed."""
    changed = bytearray(data)
    KINDS[kind](changed, random.Random(f"{kind} {seed}"))
    return bytes(changed)


def damages(data: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield so many contents that differ from the data, all kinds of damage in turn, each with what was done to it."""
    kinds = tuple(KINDS)
    made, attempt = 0, 0
    while made < count:
        kind = kinds[made % len(kinds)]
        other, attempt = damaged(data, kind, 100_000 * seed + attempt), attempt + 1
        if other != data:
            made += 1
            yield f"{kind} {attempt}, number {made}", other

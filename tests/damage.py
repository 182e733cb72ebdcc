"""Damage to files, drawn at random: what disks, power losses and careless programs do."""

from __future__ import annotations

import random


def flip(data: bytearray, rng: random.Random) -> None:
    """Other bits in up to four bytes."""
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)


def truncate(data: bytearray, rng: random.Random) -> None:
    """An end that is missing."""
    del data[rng.randrange(len(data)) :]


def zero(data: bytearray, rng: random.Random) -> None:
    """Up to 2,000 bytes that are zero."""
    start, size = rng.randrange(len(data)), rng.choice([1, 20, 500, 2000])
    data[start : start + size] = bytes(len(data[start : start + size]))


def swap(data: bytearray, rng: random.Random) -> None:
    """Two pieces of the same size, each in the other's place."""
    size = rng.choice([1, 8, 100, 512, 4096])
    first, second = sorted(rng.sample(range(0, len(data) - size), 2))
    if second - first >= size:
        data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]


KINDS = {kind.__name__: kind for kind in (flip, truncate, zero, swap)}


def damaged(data: bytes, kind: str, seed: int) -> bytes:
    """The data with damage of one kind, the same for the same seed."""
    changed = bytearray(data)
    KINDS[kind](changed, random.Random(f"{kind} {seed}"))
    return bytes(changed)

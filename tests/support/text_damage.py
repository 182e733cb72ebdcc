"""Damage to texts, drawn at random: what editors, copies and attackers do."""

from __future__ import annotations

import random


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content with one to three faults: flipped, zeroed, cut off, swapped, left out, given twice, put in."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        content = chance.choice(WAYS)(content, chance)
    return content


def _flip(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :] if content else content


def _letter(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + chance.choice(LETTERS) + content[place + 1 :]


def _insert(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + chance.choice(LETTERS) * chance.choice([1, 2, 50, 6_000]) + content[place:]


def _zero(content: bytes, chance: random.Random) -> bytes:
    place, length = _place(content, chance), chance.randrange(1, 9)
    return content[:place] + b"\0" * len(content[place : place + length]) + content[place + length :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: _place(content, chance)]


def _without(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + content[place + chance.randrange(1, 9) :]


def _swap_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) > 1:
        one, other = chance.sample(range(len(lines)), 2)
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _twice(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        place = chance.randrange(len(lines))
        lines[place:place] = [lines[place]] * chance.choice([1, 1, 40])
    return b"".join(lines)


def _number(content: bytes, chance: random.Random) -> bytes:
    """A digit becomes another number."""
    places = [place for place, letter in enumerate(content) if 48 <= letter <= 57]
    if not places:
        return content
    place = chance.choice(places)
    return content[:place] + chance.choice([b"0", b"-1", b"99999999999", b"9" * 5_000, b"1e9", b".inf"]) + content[place + 1 :]


def _place(content: bytes, chance: random.Random) -> int:
    return chance.randrange(len(content)) if content else 0


LETTERS = [letter.encode() for letter in "[]{}()&*!|>'\"%@`:,;=+-#\n\t .aA0\N{SUPERSCRIPT TWO}\u2028"] + [
    b"\xff",
    b"\x1b",
    b"\r",
]
WAYS = [_flip, _flip, _letter, _insert, _zero, _cut, _without, _swap_lines, _twice, _number]

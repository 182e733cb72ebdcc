"""Ways in which files are damaged, drawn with a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

FORMS = ("flip", "truncate", "zero", "swap")


def damaged(content: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """So many other contents, each with what was done to it: all forms in turn, each at random places."""
    draw = random.Random(seed)
    made = 0
    while made < count:
        form = FORMS[made % len(FORMS)]
        place = draw.randrange(len(content))
        length = min(draw.choice((1, 8, 64, 512)), len(content) - place)
        match form:
            case "flip":
                bit = 1 << draw.randrange(8)
                other = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
            case "truncate":
                other = content[:place]
            case "zero":
                other = content[:place] + bytes(length) + content[place + length :]
            case _:
                length = min(length, len(content) // 2)
                first = draw.randrange(len(content) - 2 * length + 1)
                second = draw.randrange(first + length, len(content) - length + 1)
                blocks = content[:first], content[second : second + length], content[first + length : second]
                other = b"".join((*blocks, content[first : first + length], content[second + length :]))
        if other != content:
            made += 1
            yield f"{form} of {length} at {place}, number {made}", other

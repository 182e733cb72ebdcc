"""The operators of the table of truth: half as random walks draw them, half drawn and kept because of what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from random import Random
from typing import Any

from table_records import OPERATORS, spec

from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.ir.support import support
from syno.ir.text import parse_stored
from syno.space.sample import Sampler
from syno.space.space import Space

DRAWS = (1168, 1211, 172, 185)  # distinct operators that are drawn with each seed: 0, 1, 2, 3
HALF = 300
SIZE = 16  # of channels and of rows and columns, where what is read is counted
AT = (0, 5, 8, 7)  # the output element: picture, channel, row, column


def reading(operator: PGraph, applied: int) -> list[Any]:
    """Return the support of an output element: its rows, its columns, the numbers of its positions and of its channels, and
    whether it contains the 3x3 positions around the element's own.
    """
    found = support(operator, {"N": 1, "C_in": SIZE, "C_out": SIZE, "H": SIZE}, AT, applied)[0]
    positions = found.any(axis=0)
    around = positions[AT[2] - 1 : AT[2] + 2, AT[3] - 1 : AT[3] + 2]
    lines = [positions.any(axis=axis).nonzero()[0].tolist() for axis in (1, 0)]
    return [*lines, int(positions.sum()), int(found.any(axis=(1, 2)).sum()), bool(around.all())]


def meets(twice: list[Any]) -> bool:
    """Whether an operator meets the requirement, by what it reads applied twice: 3x3 around its own position, all channels."""
    return bool(twice[4] and twice[3] == SIZE)


def draw(records: Path) -> Iterator[str]:
    """Write the list of operators, unless it is there; yields what is drawn, in words."""
    if (records / OPERATORS).exists():
        yield f"{records / OPERATORS} is there"
        return
    rows: dict[str, dict[str, Any]] = {}
    for seed, draws in enumerate(DRAWS):
        space = Space(spec())
        sampler, number = Sampler(space, Random(seed)), 0
        while number < draws:
            if (operator := sampler.draw()) is None:
                continue
            found = space.fingerprint(operator)
            row = {"id": operator.id, "fingerprint": found, "text": str(operator), "seed": seed, "draw": number}
            rows.setdefault(found, row)
            number += 1
            if not number % 100:
                yield f"seed {seed}: {number} of {draws} drawn"
    natural = list(islice(rows.values(), HALF))
    others = islice((row for row in islice(rows.values(), HALF, None) if meets(reading(_graph(row), 2))), HALF)
    mixed = [row for row in chain.from_iterable(zip_longest(natural, others)) if row is not None]
    firsts = {row["id"] for row in natural}
    lines = [
        json.dumps({**row, "natural": row["id"] in firsts, "twice": reading(_graph(row), 2), "once": reading(_graph(row), 1)})
        for row in mixed
    ]
    write_whole(records / OPERATORS, "\n".join(lines) + "\n")
    yield f"{len(mixed)} operators in {records / OPERATORS}"


def _graph(row: dict[str, Any]) -> PGraph:

    return parse_stored(row["text"])

"""Lines of C++, and the runtime that every file of generated code begins with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from syno.ir.coordinates import Array

FOLDER = Path(__file__).parent
HEADERS = ("threads.h", "vectors.h", "activations.h", "copies.h")  # in the order in which they need each other


def runtime(lanes: int) -> str:
    """Return the headers of the runtime as one text, which includes none but those of compilers.

    Args:
        lanes: floats of a vector.
    """
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in HEADERS]
    texts = [re.sub(r'^(#pragma once|#include ".*")\n', "", text, flags=re.MULTILINE) for text in texts]
    return "\n".join([f"#define SYNO_LANES {lanes}\n", *texts])


def linear(steps: Iterable[tuple[int, str]], constant: int = 0) -> str:
    """Return the expression of a sum of variables, each times a number, and a constant.

    >>> linear([(3, "i0"), (1, "i1"), (0, "i2")], 5)
    '3 * i0 + i1 + 5'
    """
    return sum_of((name if step == 1 else f"{step} * {name}" for step, name in steps if step), constant)


def sum_of(terms: Iterable[str], constant: int = 0) -> str:
    """Return the expression of a sum of terms and a constant."""
    pieces = list(terms)
    return " + ".join([*pieces, str(constant)] if constant or not pieces else pieces)


def constant_table(name: str, values: Array) -> str:
    """Return the definition of an array of integers, from a cache line's beginning on."""
    return f"alignas(64) static const int {name}[{values.size}] = {{{', '.join(map(str, values.reshape(-1).tolist()))}}};"


class Writer:
    """Writes lines with their indentation, from a depth on."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def line(self, *texts: str) -> None:
        """Write lines."""
        self.lines += ["  " * self.depth + text for text in texts]

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Write what the context writes as a block in braces behind `head`."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

"""Helpers that write lines of C++, and the runtime: the fixed headers at the beginning of each generated file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from syno.ir.coordinates import Array

FOLDER = Path(__file__).parent
HEADERS = ("threads.h", "vectors.h", "activations.h", "copies.h")  # in the order in which they need each other


def runtime(lanes: int) -> str:
    """Return the headers of the runtime as one text, which includes only headers that come with compilers.

    Args:
        lanes: number of floats in a vector.
    """
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in HEADERS]
    texts = [re.sub(r'^(#pragma once|#include ".*")\n', "", text, flags=re.MULTILINE) for text in texts]
    return "\n".join([f"#define SYNO_LANES {lanes}\n", *texts])


def linear(steps: Iterable[tuple[int, str]], constant: int = 0) -> str:
    """Return the C++ expression of a linear combination: the sum of `step * variable`, and a constant.

    >>> linear([(3, "i0"), (1, "i1"), (0, "i2")], 5)
    '3 * i0 + i1 + 5'
    """
    return sum_of((name if step == 1 else f"{step} * {name}" for step, name in steps if step), constant)


def sum_of(terms: Iterable[str], constant: int = 0) -> str:
    """Return the C++ expression of a sum of terms and a constant."""
    pieces = list(terms)
    return " + ".join([*pieces, str(constant)] if constant or not pieces else pieces)


def constant_table(name: str, values: Array) -> str:
    """Return the C++ definition of a constant array of integers, aligned to a cache line."""
    return f"alignas(64) static const int {name}[{values.size}] = {{{', '.join(map(str, values.reshape(-1).tolist()))}}};"


class Writer:
    """A writer of C++ code: collects lines with their indentation."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def line(self, *texts: str) -> None:
        """Write lines at the current indentation."""
        self.lines += ["  " * self.depth + text for text in texts]

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Put the lines that are written in the context into braces after `head`."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

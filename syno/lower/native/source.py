"""Lines of C++, and the runtime that every file of generated code begins with."""

from __future__ import annotations

import re
from pathlib import Path

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


class Writer:
    """Writes lines with their indentation, from a depth on."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        """Begin a block, whose brace follows `text`."""
        self.line(f"{text} {{".lstrip())
        self.depth += 1

    def close(self) -> None:
        """End a block."""
        self.depth -= 1
        self.line("}")

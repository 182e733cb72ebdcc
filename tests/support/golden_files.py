"""Golden files: texts that must come out exactly as they lie in tests/golden/.

`golden_files.check("conv2d.svg", to_svg(graph))` compares. When a text has changed on purpose, write all golden files
anew and look at what `git diff` shows: `UPDATE_GOLDEN=1 pytest tests`.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"
VARIABLE = "UPDATE_GOLDEN"


def check(name: str, text: str) -> None:
    """`text` must equal the golden file `name`; with UPDATE_GOLDEN=1 in the environment the file is written instead."""
    path = FOLDER / name
    if os.environ.get(VARIABLE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    assert path.exists(), f"there is no golden file {path}; write it with {VARIABLE}=1 pytest tests"
    expected = path.read_bytes().decode("utf-8")
    assert text == expected, f"{name} differs from the golden file; if it should, write it anew with {VARIABLE}=1 pytest tests"

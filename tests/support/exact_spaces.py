"""Small spaces in which options and occurrences leave room, so that rules alone decide which functions they hold."""

from __future__ import annotations

from typing import Any

from small_specs import changeable

ROOM: dict[str, Any] = {
    "windows": {"odd": False, "least_ratio": 1.0},
    "contractions": {"least_elements": 1, "largest_outer": 10**9, "least_low_rank": 1, "most_low_rank": 10**9},
    "reductions": {"multiple": 10**9, "largest_pooling": 10**9},
    "depth": 4,
}
CHANNELS = {"C": 32, "D": 64, "H": 12}


@changeable
def channels() -> dict[str, Any]:
    """C -> D."""
    return {**ROOM, "input": "C", "output": "D", "variables": "C:2, D:2; g=2:2", "layers": [{"C": 32, "D": 64}]}


@changeable
def picture() -> dict[str, Any]:
    """C, H -> D, H, with a coefficient."""
    return {**ROOM, "input": "C, H", "output": "D, H", "variables": "C:2, D:2, H:0; g=2:2", "layers": [CHANNELS]}


@changeable
def unordered() -> dict[str, Any]:
    """The same with channels in no order."""
    shapes = {"input": "C: unordered, H", "output": "D: unordered, H"}
    return {**ROOM, **shapes, "variables": "C:2, D:2, H:0; g=2:2", "layers": [CHANNELS]}


@changeable
def windows() -> dict[str, Any]:
    """With windows."""
    return {**ROOM, "input": "C, H", "output": "D, H", "variables": "C:2, D:2, H:0; k=3:2", "layers": [CHANNELS]}


@changeable
def two_weights() -> dict[str, Any]:
    """C -> D with two weights."""
    return {
        **ROOM,
        "input": "C",
        "output": "D",
        "variables": "C:2, D:2; g=2:2",
        "layers": [{"C": 8, "D": 16}],
        "occurrences": {"tensors": 3, "shifts": 1},
    }


@changeable
def strided() -> dict[str, Any]:
    """One axis with windows and strides."""
    return {
        **ROOM,
        "input": "H",
        "output": "H",
        "variables": "H:0; k=3:2, s=2:2",
        "layers": [{"H": 24}],
        "occurrences": {"strides": 1, "shifts": 1},
    }


@changeable
def heads() -> dict[str, Any]:
    """A projection to several heads, with repeats and tiles."""
    return {
        **ROOM,
        "input": "L, C: unordered",
        "output": "L, t*C",
        "variables": "L:0, C:3; t=3:2",
        "layers": [{"L": 12, "C": 27}],
        "repeats": {"largest": 5, "tile": True},
    }


ALL = (channels, picture, unordered, windows, two_weights, strided, heads)

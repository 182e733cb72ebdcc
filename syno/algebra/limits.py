"""Limits on the size of operators and of the texts that hold them.

Real operators stay far below them: the published ones have at most 19 primitives, 2 weights and 5 reductions. A text beyond
a limit is refused at once, so that no input takes long. docs/language.md lists the limits.
"""

MOST_CHARACTERS = 100_000  # of an operator's text
MOST_DOT_CHARACTERS = 20_000  # of a graph.dot; the published ones have up to 3,404
MOST_JSON_BYTES = 1_000_000  # of the other files of a published operator
MOST_LINE_CHARACTERS = 4_000  # of one line of an operator's text, without its comment
MOST_NAME_CHARACTERS = 100  # of a variable's or a dim's name
LARGEST_NUMBER = 2**31 - 1  # a variable's value, the length of an axis, the amount of a Shift
MOST_VARIABLES = 32
MOST_PRIMITIVES = 200
MOST_HEIGHT = 64  # primitives on one path from the output to a tensor
MOST_AXES = 32  # of the output, of the input, of each weight; output axes and reductions together: NumPy 1 has no more
MOST_WEIGHTS = 16  # plans try the orders of weights: see MOST_ORDERS in syno/lower/stages.py
MOST_TERMS = 10_000  # in the coordinate of one axis, written out: some chains of views double it at each step

LIMITS = {  # the table in docs/language.md
    "characters in a text": MOST_CHARACTERS,
    "characters in a `graph.dot`": MOST_DOT_CHARACTERS,
    "characters in a line": MOST_LINE_CHARACTERS,
    "characters in the name of a variable or a dim": MOST_NAME_CHARACTERS,
    "a variable's value, the length of an axis, the amount of a Shift": LARGEST_NUMBER,
    "variables": MOST_VARIABLES,
    "primitives": MOST_PRIMITIVES,
    "primitives above each other": MOST_HEIGHT,
    "axes of a tensor; output axes and reductions together": MOST_AXES,
    "weights": MOST_WEIGHTS,
    "terms in the coordinate of an axis, written out": MOST_TERMS,
}


def shortened(text: str, most: int = 120) -> str:
    """Return a text as messages quote it: at most `most` characters, with control characters as escapes."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:most])
    return shown if len(text) <= most else f"{shown}..."

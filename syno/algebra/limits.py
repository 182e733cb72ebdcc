"""Limits on the size of operators and of the texts that hold them.

They leave much room above real operators (the published ones have at most 19 primitives, 2 weights and 5 reductions) and keep
every answer fast: a text beyond a limit gets one error at once. docs/language.md lists them.
"""

MOST_CHARACTERS = 100_000  # of an operator's text
MOST_DOT_CHARACTERS = 20_000  # of a graph.dot, which pydot takes its time to read; the published ones have up to 3,404
MOST_JSON_BYTES = 1_000_000  # of the other files of a published operator
MOST_LINE_CHARACTERS = 4_000  # of one line of an operator's text, without its comment
MOST_NAME_CHARACTERS = 100  # of a variable's or a dim's name
LARGEST_NUMBER = 2**31 - 1  # a variable's value, the length of an axis, the amount of a Shift
MOST_VARIABLES = 32
MOST_PRIMITIVES = 200
MOST_HEIGHT = 64  # primitives on one path from the output to a tensor
MOST_AXES = 32  # of the output, of the input, of each weight; output axes and reductions together: NumPy 1 has no more
MOST_WEIGHTS = 16
MOST_TERMS = 10_000  # in the coordinate of one axis, written out: some views double it, one after the other

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
    """The text for a message that quotes it: cut off after `most` characters, control characters as escapes."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:most])
    return shown if len(text) <= most else f"{shown}..."

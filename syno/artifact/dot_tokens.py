"""Checks of a `graph.dot` before pydot reads it.

The DOT language has much that the published drawings don't, and pydot takes exponential time for brackets inside each other and
quadratic time for many statements. A file with more than drawings need is refused here, in time linear in its length.
"""

from __future__ import annotations

import re

from syno.algebra.limits import MOST_DOT_CHARACTERS, shortened
from syno.base.errors import ParseError

MOST_NAMES = 400  # outside of attributes: nodes, both ends of edges; the published drawings have up to 125
MOST_TOKENS = 3_000
MOST_SUBGRAPHS = 60
DEEPEST = 3  # a graph, clusters in it
_TOKEN = re.compile(r'"[^"\\]*"|->|[A-Za-z0-9_.]+|[\[\]{};,=]')
_SPACE = re.compile(r"\s*")


def check_dot_text(text: str) -> None:
    """Raise ParseError for a text that is larger than drawings of operators are, or has in it what these have not."""
    if len(text) > MOST_DOT_CHARACTERS:
        raise ParseError(f"{len(text)} characters; a drawing has at most {MOST_DOT_CHARACTERS}")
    names = tokens = subgraphs = depth = 0
    in_attributes = False
    position = _end(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise ParseError(f'not in the DOT language of drawings: "{shortened(text[position:].splitlines()[0], 40)}"')
        token, position = match[0], _end(text, match.end())
        tokens += 1
        in_attributes = token == "[" or (in_attributes and token != "]")
        names += not in_attributes and token not in "[]{};,=->"
        subgraphs += token == "{"
        depth += (token == "{") - (token == "}")
        counts = (
            ("names of nodes", names, MOST_NAMES),
            ("words and signs", tokens, MOST_TOKENS),
            ("subgraphs", subgraphs, MOST_SUBGRAPHS),
            ("braces inside each other", depth, DEEPEST),
        )
        for what, count, most in counts:
            if count > most:
                raise ParseError(f"more than {most} {what}, which are the most that a drawing has")


def _end(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start

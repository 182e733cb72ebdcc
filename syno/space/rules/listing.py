"""The table of rules as text: for a terminal, and for the documentation."""

from __future__ import annotations

from syno.space.rules.examples import EXAMPLES
from syno.space.rules.table import BY_CONSTRUCTION, RULES

COLUMNS = ("id", "looks at", "forbids", "because", "kind", "default", "source")


def rows() -> list[tuple[str, ...]]:
    """One row per rule, and one per rule that nothing can break."""
    table = [
        (
            row.id,
            ", ".join(row.kinds),
            row.forbids,
            row.reason,
            "exact" if row.exact else _approximate(row.id),
            "on" if row.on else "off" + (f" (the other of {row.against})" if row.against else ""),
            row.source,
        )
        for row in RULES.values()
    ]
    table += [(held.id, "–", held.forbids, held.reason, "exact", "always", held.source) for held in BY_CONSTRUCTION]
    return sorted(table, key=lambda row: (row[0][0] != "V", row[0][0], int("".join(filter(str.isdigit, row[0]))), row[0]))


def _approximate(rule: str) -> str:
    """With the agreement ratio of the rule's example, if that has another form."""
    share = EXAMPLES[rule].agreement()
    return "policy" if share is None else f"approximate ({share:.3f})"


def rules_table() -> str:
    """The table in Markdown."""
    rule = ["---"] * len(COLUMNS)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (COLUMNS, rule, *rows()))

"""An ablation as a part of the report page: its figure, its table, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syno.base.text_tables import shown
from syno.paper.ablations.drawing import draw
from syno.paper.ablations.tables import AblationRow
from syno.paper.numbers import CANONICAL_RATES, LARGEST, WALKING_CORES, WALKS_WITH_DISTANCE, WALKS_WITHOUT_DISTANCE
from syno.report.figures import drawn
from syno.report.page_tables import NOTHING, Cell, Table

TITLES = {
    "canonical": "Canonical graphs",
    "distance": "Shape distances",
    "patterns": "Common patterns",
    "requirements": "Requirements",
}
_WITH, _WITHOUT = WALKS_WITH_DISTANCE, WALKS_WITHOUT_DISTANCE
CAPTIONS = {
    "canonical": "The share of random graphs that the canonicalization rules accept, by the number of primitives. A graph is "
    "canonical if the rules accept its steps in some order. Diamonds are the paper's shares (Table 3), and the dotted line is "
    f"that of all its sizes. Paper: {', '.join(f'{100 * rate:.4g}' for rate in CANONICAL_RATES.values())} % of its graphs "
    f"of {min(CANONICAL_RATES)} to {LARGEST - 1} primitives, and of {LARGEST} or more; the last has no mark.",
    "distance": "Random walks that are guided by each shape distance, with the same seed and CPU time; and the share of all "
    "operators up to a number of primitives that a distance loses if this number is the depth limit. Paper: with its distance, "
    f"{_WITH.operators} operators of {_WITH.walks:,} walks in {_WITH.seconds} s on {WALKING_CORES} cores; without, "
    f"{_WITHOUT.operators} of {_WITHOUT.walks:,} in {_WITHOUT.seconds} s.",
    "patterns": "How often patterns occur in the operators found, in the best of them, and in random operators of the space. A "
    "lift is the ratio of two of these shares. It says that a pattern goes along with good operators, not why.",
    "requirements": "Random walks with the requirement on what operators read of their input, and without it, with the same "
    "seed and CPU time: the share of walks that end in an operator, and the different operators that meet the requirement.",
}
SAME = ("space", "space_id", "depth", "seed")  # in all rows of a table; the notes say it


@dataclass(frozen=True)
class AblationPart:
    """A part of the page.

    Attributes:
        name: the id of its section.
        title, caption: the heading, and how to read the figure.
        svg: the figure.
        table: the ablation's table with all rows.
        notes: lines on the origin of the numbers.
    """

    name: str
    title: str
    caption: str
    svg: str
    table: Table
    notes: Sequence[str]


def page_part(name: str, rows: Sequence[AblationRow], notes: Sequence[str]) -> AblationPart:
    """Return the part of the page for an ablation, from the rows of its table."""
    svg = drawn(draw(name, rows, ()), "svg").decode()  # its notes are beside it, as text
    return AblationPart(f"ablation-{name}", TITLES[name], CAPTIONS[name], svg, _table(rows), notes)


def _table(rows: Sequence[AblationRow]) -> Table:
    columns = [name for name in rows[0] if name not in SAME and any(row[name] is not None for row in rows)] if rows else []
    texts = {name for name in columns if any(isinstance(row[name], str) for row in rows)}
    return Table(
        tuple(name.replace("_", " ") for name in columns),
        tuple(tuple(_cell(row[name], name in texts) for name in columns) for row in rows),
    )


def _cell(value: object, is_text: bool) -> Cell:
    if is_text:
        return Cell("" if value is None else str(value), is_number=False)
    return Cell(NOTHING) if not isinstance(value, int | float) else Cell(shown(value), float(value))

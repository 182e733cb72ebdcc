"""The table of rules as text, and the evidence for each rule: both forms of its example compared.

Exact rules are proven on their examples: both forms have one fingerprint. Approximate ones have an agreement ratio, the share
of summands at which both forms read the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.space.identity.agreement import agreement
from syno.space.identity.fingerprint import same_operator
from syno.space.rules.examples import EXAMPLES, VALUES, VARIABLES
from syno.space.rules.table import RULES, Rule

COLUMNS = ("id", "looks at", "forbids", "because", "kind", "default", "source")


@dataclass(frozen=True)
class Unbreakable:
    """A rule that the language or the generator keeps by itself: no step can break it, so it cannot be switched off."""

    id: str
    forbids: str
    reason: str
    source: str


BY_CONSTRUCTION = (
    Unbreakable(
        "C2",
        "a view of a weight's axis",
        "the layout of a weight can be changed offline: the language has no such views",
        "section 5.3",
    ),
    Unbreakable(
        "C3",
        "Share above the weight's side of a Share",
        "products commute: chains of Shares grow on the data's side",
        "section 5.3",
    ),
    Unbreakable(
        "C4",
        "the Shares of one weight in several steps",
        "all Shares of a weight are one step, in one order",
        "published system",
    ),
)


def forms(rule: str) -> tuple[PGraph, PGraph | None]:
    """Return the form that a rule rejects in its example, and the form that stays, if there is one."""
    example = EXAMPLES[rule]
    rejected, kept = (
        None if text is None else parse(f"operator example\nvariables {VARIABLES}\n" + text.replace("; ", "\n"))
        for text in (example.rejected, example.kept)
    )
    assert rejected is not None
    return rejected, kept


def is_proven(rule: str) -> bool:
    """Return whether both forms of a rule's example compute the same."""
    (rejected, kept), (output, given) = forms(rule), EXAMPLES[rule].unordered
    return kept is not None and same_operator(rejected, kept, unordered_output=output, unordered_input=given)


def agreement_ratio(rule: str) -> float | None:
    """Return the share of summands at which both forms of a rule's example read the same; None without another form."""
    rejected, kept = forms(rule)
    if kept is None:
        return None
    values = {**VALUES, **EXAMPLES[rule].values}
    return agreement(rejected, kept, {name: values[name] for name in {*rejected.variables, *kept.variables}})


def rows(rules: Iterable[Rule] = tuple(RULES.values())) -> list[tuple[str, ...]]:
    """Return one row per rule, in order of their ids, and one per rule that nothing can break.

    Args:
        rules: the built-in rules, or those of a space (`space.rules.rules`), which may be a user's own.
    """
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
        for row in rules
    ]
    table += [(held.id, "–", held.forbids, held.reason, "exact", "always", held.source) for held in BY_CONSTRUCTION]
    return sorted(table, key=_place)


def _place(row: tuple[str, ...]) -> tuple[object, ...]:
    """Return where a row is listed: views first, then by letter and number; a user's own rules last."""
    name, number = row[0], "".join(filter(str.isdigit, row[0]))
    is_own = name not in EXAMPLES and name not in {held.id for held in BY_CONSTRUCTION}
    return is_own, name[0] != "V", name[0], int(number or 0), name


def _approximate(rule: str) -> str:
    """Return the kind of a rule that is not exact, with the agreement ratio of its example if that has another form."""
    share = agreement_ratio(rule) if rule in EXAMPLES else None
    return "policy" if share is None else f"approximate ({share:.3f})"


def rules_table() -> str:
    """Return the table in Markdown."""
    rule = ["---"] * len(COLUMNS)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (COLUMNS, rule, *rows()))

"""The table of rules as text, and the evidence for each rule: the two forms of its example, compared.

Exact rules are proven on their examples: both forms have the same fingerprint. Approximate ones have an agreement ratio, the
share of summands at which both forms read the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.space.identity.agreement import agreement
from syno.space.identity.fingerprint import same_operator
from syno.space.rules.table import RULES, Rule

# An example for each rule: a form that it rejects, and the form that stays.
#
# Written in the operators' text form, one line after the other, "; " between them. `syno.space.rules.listing` compares the two.

VARIABLES = "N, C, D, H; b, c, k, s, t"
VALUES = {"N": 4, "C": 6, "D": 5, "H": 16, "b": 8, "c": 4, "k": 3, "s": 2, "t": 2}


@dataclass(frozen=True)
class Example:
    """Two forms of an operator that a rule tells apart.

    Attributes:
        rejected: the form that the rule rejects, as text.
        kept: the equal form that the rule accepts; None if there is none, or if the rule orders steps of the same graph.
        note: why `kept` is None.
        unordered: axes of output and input whose positions have no order in this example.
        values: sizes for the agreement ratio, where they differ from VALUES.
    """

    rejected: str
    kept: str | None = None
    note: str = ""
    unordered: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    values: Mapping[str, int] = field(default_factory=dict)


ORDER = "both orders give the same graph; one of them is taken"
NOTHING = "it equals nothing else: the rule keeps it out because it is of little use"

EXAMPLES: dict[str, Example] = {
    "V1": Example(
        "output i:b*H, j:c; a:b*c*H = Split(i, j); q:H, r:b*c = Merge(a, b*c); input q:H, r:b*c",
        "output i:b*H, j:c; q:H, m:b = Merge(i, b); r:b*c = Split(m, j); input q:H, r:b*c",
    ),
    "V1p": Example(
        "output i:H, j:C; a:C*H = Split(i, j); q:C, m:H = Merge(a, H); input q:C, m:H",
        note="one axis of both pieces, cut somewhere else: of H and C neither divides the other",
    ),
    "V2": Example(
        "output i:b*c*H; q:c*H, r:b = Merge(i, b); p:H, m:c = Merge(q, c); input p:H, m:c, r:b",
        "output i:b*c*H; p:H, q:b*c = Merge(i, b*c); m:c, r:b = Merge(q, b); input p:H, m:c, r:b",
    ),
    "V2p": Example(
        "output i:b*c*H; a:b*c*H = Shift(i, 1); q:c*H, r:b = Merge(a, b); p:H, m:c = Merge(q, c); input p:H, m:c, r:b",
        note="V6 rejects the Merge of the larger block above the Shift",
    ),
    "V3": Example(
        "output i:H, j:b, l:c; a:b*H = Split(i, j); d:b*c*H = Split(a, l); input d:b*c*H",
        "output i:H, j:b, l:c; a:b*c = Split(j, l); d:b*c*H = Split(i, a); input d:b*c*H",
    ),
    "V4": Example("output i:b*H; q:H, r:b = Merge(i, b); a:b*H = Split(q, r); input a:b*H", "output i:b*H; input i:b*H"),
    "V4p": Example(
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:C = Share(q, w1[0]); e:b = Share(m, w1[1]); f:b = Share(e, w2[0]); "
        "a:b*C = Split(d, f); input i:H, a:b*C; weight w1[C, b]; weight w2[b]",
        note="one sum has no piece for the second weight",
    ),
    "V5": Example(
        "output i:H; a:H = Shift(i, 1); d:H = Shift(a, 1); input d:H",
        note="a Shift by two positions, which no single step makes",
    ),
    "V6": Example(
        "output i:b*H; a:b*H = Shift(i, 1); q:H, r:b = Merge(a, b); input q:H, r:b",
        "output i:b*H; q:H, m:b = Merge(i, b); r:b = Shift(m, 1); input q:H, r:b",
    ),
    "V7": Example(
        "output i:H; r:k = Reduce(); a:k*s = Stride(r, s); d:k*s*t = Stride(a, t); e:H = Unfold(i, d); input e:H",
        "output i:H; r:k = Reduce(); d:k*s*t = Stride(r, s*t); e:H = Unfold(i, d); input e:H",
    ),
    "V8": Example(
        "output i:H; r:k = Reduce(); p:c = Reduce(); a:c*k = Split(r, p); d:c*k*s = Stride(a, s); e:H = Unfold(i, d); "
        "input e:H",
        "output i:H; r:k = Reduce(); p:c = Reduce(); a:c*s = Stride(p, s); d:c*k*s = Split(r, a); e:H = Unfold(i, d); "
        "input e:H",
    ),
    "V8p": Example(
        "output i:H; r:k = Reduce(); p:c = Reduce(); u:t = Reduce(); f:c = Unfold(p, u); a:c*k = Split(r, f); "
        "d:c*k*s = Stride(a, s); e:H = Unfold(i, d); input e:H",
        note="V10 rejects the Stride above the Unfold",
    ),
    "V9": Example(
        "output i:H, j:H; r:b*k = Reduce(); a:b*k*s = Stride(r, s); q:k, m:b*s = Merge(a, b*s); d:H = Unfold(i, q); "
        "e:H = Unfold(j, m); input d:H, e:H",
        "output i:H, j:H; r:b*k = Reduce(); q:k, p:b = Merge(r, b); m:b*s = Stride(p, s); d:H = Unfold(i, q); "
        "e:H = Unfold(j, m); input d:H, e:H",
    ),
    "V9p": Example(
        "output i:H, j:H; r:b*k = Reduce(); a:b*k*s = Stride(r, s); q:k*s, m:b = Merge(a, b); d:H = Unfold(i, q); "
        "e:H = Unfold(j, m); input d:H, e:H",
        note="pieces that begin between two strides",
    ),
    "V10": Example(
        "output i:H, j:H; r:k = Reduce(); p:t = Reduce(); a:k = Unfold(r, p); d:k*s = Stride(a, s); e:H = Unfold(i, d); "
        "input e:H, j:H",
        "output i:H, j:H; r:k = Reduce(); p:t = Reduce(); a:k*s = Stride(r, s); f:s*t = Stride(p, s); d:k*s = Unfold(a, f); "
        "e:H = Unfold(i, d); input e:H, j:H",
        values={"t": 3, "k": 5},
    ),
    "V11": Example(
        "output i:H, j:b; r:k = Reduce(); a:b*H = Split(i, j); d:b*H = Unfold(a, r); input d:b*H",
        "output i:H, j:b; r:k = Reduce(); a:b = Unfold(j, r); d:b*H = Split(i, a); input d:b*H",
    ),
    "V12": Example(
        "output i:b*N; r:k = Reduce(); a:b*N = Unfold(i, r); q:N, m:b = Merge(a, b); input q:N, m:b",
        "output i:b*N; r:k = Reduce(); q:N, a:b = Merge(i, b); m:b = Unfold(a, r); input q:N, m:b",
    ),
    "V13": Example(
        "output i:c*H; r:c*k = Reduce(); a:c*H = Unfold(i, r); q:H, m:c = Merge(a, c); input q:H, m:c",
        note="nearly what two windows give, one over each piece; which one depends on carries",
    ),
    "V14": Example(
        "output i:H; r:k = Reduce(); a:H = Shift(i, 1); d:H = Unfold(a, r); input d:H",
        "output i:H; r:k = Reduce(); a:H = Unfold(i, r); d:H = Shift(a, 1); input d:H",
    ),
    "V15": Example(
        "output i:H; r:k*s = Reduce(); p:k = Reduce(); a:H = Unfold(i, r); d:H = Unfold(a, p); input d:H",
        "output i:H; r:k*s = Reduce(); p:k = Reduce(); a:H = Unfold(i, p); d:H = Unfold(a, r); input d:H",
    ),
    "V16": Example(
        "output i:H; a:H = Share(i, w1[0]); d:H = Shift(a, 1); input d:H; weight w1[H]",
        "output i:H; a:H = Shift(i, 1); d:H = Share(a, w1[0]); input d:H; weight w1[H]",
    ),
    "V16p": Example(
        "output i:H; a:H = Shift(i, 1); d:H = Share(a, w1[0]); e:H = Shift(d, 1); input e:H; weight w1[H]",
        note="V5 rejects the second Shift below the Share",
    ),
    "V17": Example(
        "output i:H; r:b*C = Reduce(); q:C, m:b = Merge(r, b); input i:H, q:C, m:b",
        "output i:H; q:C = Reduce(); m:b = Reduce(); input i:H, q:C, m:b",
    ),
    "V17p": Example(
        "output i:H; r:C = Reduce(); q:b^-1*C, m:b = Merge(r, b); input i:H, q:b^-1*C, m:b",
        note="reductions of b and of C / b use b twice, the Merge once",
    ),
    "V18": Example(
        "output i:H; r:C = Reduce(); a:C = Shift(r, 1); input i:H, a:C", "output i:H; r:C = Reduce(); input i:H, r:C"
    ),
    "V19": Example("output i:H; r:k = Reduce(); a:H = Unfold(i, r); input a:H", note=NOTHING),
    "V20": Example(
        "output i:H; r:C = Reduce(); p:k = Reduce(); d:k = Share(p, w1[0]); a:C = Unfold(r, d); input i:H, a:C; weight w1[k]",
        "output i:H; r:C = Reduce(); p:k = Reduce(); d:k = Share(p, w1[0]); Expand(d); input i:H, r:C; weight w1[k]",
        note="the sums agree but at the border, though not summand by summand",
    ),
    "V21": Example(
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:C = Share(q, w1[0]); e:b = Share(m, w1[1]); a:b*C = Split(d, e); "
        "input i:H, a:b*C; weight w1[C, b]",
        "output i:H; q:C = Reduce(); m:b = Reduce(); d:b*C = Split(q, m); a:b*C = Share(d, w1[0]); input i:H, a:b*C; "
        "weight w1[b*C]",
    ),
    "V21p": Example(
        "output i:H; q:C = Reduce(); m:b = Reduce(); n:c = Reduce(); d:C = Share(q, w1[0]); e:c = Share(n, w1[1]); "
        "f:b*C = Split(d, m); a:b*c*C = Split(f, e); input i:H, a:b*c*C; weight w1[C, c]",
        note="the weight has no axis for the sum between",
    ),
    "V22": Example(
        "output i:H, j:b; r:k = Reduce(); a:H = Unfold(i, r); d:b*H = Split(a, j); input d:b*H",
        note="a window that moves by whole blocks; nothing simpler equals it",
    ),
    "C1": Example("output i:H; r:C = Reduce(); a:H = Shift(i, 1); input a:H, r:C", note=ORDER),
    "C5": Example("output i:H; a:H = Share(i, w1[0]); input a:H; weight w1[H]", note=NOTHING),
    "C6": Example(
        "output i:s; r:t = Reduce(); a:s = Share(i, w1[0]); d:t = Share(r, w1[1]); Expand(a); input d:t; weight w1[s, t]",
        note=NOTHING,
    ),
    "C7": Example(
        "output i:C, j:D; r:H = Reduce(); p:N = Reduce(); a:C = Share(i, w1[0]); d:H = Share(r, w1[1]); e:D = Share(j, w2[0]); "
        "f:N = Share(p, w2[1]); Expand(a); Expand(e); input d:H, f:N; weight w1[C, H]; weight w2[D, N]",
        "output i:C, j:D; r:H = Reduce(); p:N = Reduce(); a:C = Share(i, w2[0]); d:H = Share(r, w2[1]); e:D = Share(j, w1[0]); "
        "f:N = Share(p, w1[1]); Expand(a); Expand(e); input d:H, f:N; weight w1[D, N]; weight w2[C, H]",
    ),
    "C8": Example(
        "output i:H, j:C; r:D = Reduce(); a:C = Share(j, w1[0]); d:D = Share(r, w1[1]); Expand(a); e:H = Shift(i, 1); "
        "input e:H, d:D; weight w1[C, D]",
        note=ORDER,
    ),
    "C9": Example(
        "output i:b*C; r:D = Reduce(); q:C, m:b = Merge(i, b); a:C = Share(q, w1[0]); e:b = Share(m, w1[1]); "
        "d:D = Share(r, w1[2]); Expand(a); Expand(e); input d:D; weight w1[C, b, D]",
        "output i:b*C; r:D = Reduce(); a:b*C = Share(i, w1[0]); d:D = Share(r, w1[1]); Expand(a); input d:D; weight w1[b*C, D]",
    ),
    "C9p": Example(
        "output i:C; r:b = Reduce(); p:c = Reduce(); t:D = Reduce(); a:C = Share(i, w1[0]); d:b = Share(r, w1[1]); "
        "e:c = Share(p, w1[2]); Expand(a); f:b = Share(d, w2[0]); j:c = Share(e, w2[1]); l:D = Share(t, w2[2]); Expand(f); "
        "Expand(j); input l:D; weight w1[C, b, c]; weight w2[b, c, D]",
        note="two weights that share more than an option lets them share along one axis",
    ),
    "C10": Example(
        "output i:b*c*H; q:H, m:b*c = Merge(i, b*c); e:c, f:b = Merge(m, b); Expand(e); Expand(f); input q:H",
        "output i:b*c*H; q:H, m:b*c = Merge(i, b*c); Expand(m); input q:H",
    ),
    "C11": Example("output i:H; r:C = Reduce(); Expand(r); input i:H", note="a constant factor: C times the input"),
    "C12": Example(
        "output i:C; r:D = Reduce(); p:H = Reduce(); a:C = Share(i, w1[0]); d:D = Share(r, w1[1]); e:H = Share(p, w1[2]); "
        "Expand(a); Expand(d); input e:H; weight w1[C, D, H]",
        note="it can learn what a weight without that axis can: the sum over it",
    ),
    "C13": Example("output i:H, j:H; a:H = Shift(i, 1); d:H = Shift(a, 1); e:H = Shift(d, 1); input e:H, j:H", note=NOTHING),
    "C14": Example("output i:H; r:C = Reduce(); a:C*H = Split(i, r); input a:C*H", note=NOTHING),
    "U1": Example(
        "output i:C; r:D = Reduce(); j:C = Shift(i, 1); a:C = Share(j, w1[0]); d:D = Share(r, w1[1]); Expand(a); input d:D; "
        "weight w1[C, D]",
        "output i:C; r:D = Reduce(); a:C = Share(i, w1[0]); d:D = Share(r, w1[1]); Expand(a); input d:D; weight w1[C, D]",
        unordered=((0,), ()),
    ),
    "U2": Example(
        "output i:c*C; q:C, m:c = Merge(i, c); input q:C, m:c",
        "output i:c*C; m:c, q:C = Merge(i, C); input q:C, m:c",
        unordered=((0,), ()),
    ),
    "U3": Example(
        "output i:b*C; q:C, m:b = Merge(i, b); a:b*C = Split(m, q); input a:b*C",
        "output i:b*C; input i:b*C",
        unordered=((0,), ()),
    ),
    "U4": Example(
        "output i:D; r:C = Reduce(); p:C = Share(r, w1[0]); j:D = Share(i, w1[1]); Expand(j); a:C = Shift(p, 1); input a:C; "
        "weight w1[C, D]",
        "output i:D; r:C = Reduce(); p:C = Share(r, w1[0]); j:D = Share(i, w1[1]); Expand(j); input p:C; weight w1[C, D]",
        unordered=((), (0,)),
    ),
    "U5": Example(
        "output i:b, j:C; a:b*C = Split(j, i); input a:b*C",
        "output i:b, j:C; a:b*C = Split(i, j); input a:b*C",
        unordered=((), (0,)),
    ),
    "U6p": Example(
        "output i:b*c*C; q:C, a:b*c = Merge(i, b*c); m:b, p:c = Merge(a, c); d:b = Share(m, w1[0]); Expand(d); "
        "e:c*C = Split(p, q); f:c*C = Share(e, w1[1]); input f:c*C; weight w1[b, c*C]",
        note="between the two pieces is one that only the weight is indexed by",
        unordered=((), (0,)),
    ),
    "U7": Example(
        "output i:H; q:C = Reduce(); m:b = Reduce(); r:b*C = Split(q, m); input i:H, r:b*C",
        "output i:H; r:b*C = Reduce(); input i:H, r:b*C",
        unordered=((), (1,)),
    ),
    "S1": Example("output i:H; a:H = Shift(i, 1); input a:H", note="the output rolled by one position"),
    "S2": Example(
        "output i:H, j:H; a:H = Shift(i, 1); input a:H, j:H", note="height and width exchanged, in the output and in the input"
    ),
}
EXAMPLES["U6"] = replace(EXAMPLES["U3"], unordered=((), (0,)))
EXAMPLES |= {name: EXAMPLES[name.rstrip("b")] for name in ("V8b", "V9b", "V11b", "V12b", "V14b", "C10b")}


COLUMNS = ("id", "looks at", "forbids", "because", "kind", "default", "source")


@dataclass(frozen=True)
class Unbreakable:
    """A rule that follows from the language or the generator: no step can break it, so it cannot be switched off."""

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
    """Return the rejected and the kept form of a rule's example; None in place of a kept form that does not exist."""
    example = EXAMPLES[rule]
    rejected, kept = (
        None if text is None else parse(f"operator example\nvariables {VARIABLES}\n" + text.replace("; ", "\n"))
        for text in (example.rejected, example.kept)
    )
    assert rejected is not None
    return rejected, kept


def is_proven(rule: str) -> bool:
    """Return whether both forms of a rule's example compute the same function."""
    (rejected, kept), (output, unordered_input) = forms(rule), EXAMPLES[rule].unordered
    return kept is not None and same_operator(rejected, kept, unordered_output=output, unordered_input=unordered_input)


def agreement_ratio(rule: str) -> float | None:
    """Return the share of summands in which both forms of a rule's example read the same; None without a second form."""
    rejected, kept = forms(rule)
    if kept is None:
        return None
    values = {**VALUES, **EXAMPLES[rule].values}
    return agreement(rejected, kept, {name: values[name] for name in {*rejected.variables, *kept.variables}})


def rows(rules: Iterable[Rule] = tuple(RULES.values())) -> list[tuple[str, ...]]:
    """Return one row per rule, in order of their ids, including the rules that cannot be broken.

    Args:
        rules: the built-in rules, or those of a space (`space.rules.rules`), which may include a user's own.
    """
    table = [
        (
            row.id,
            ", ".join(kind.name for kind in row.looks_at),
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
    """Return the sort key of a row: views first, then by letter and number; a user's own rules last."""
    name, number = row[0], "".join(filter(str.isdigit, row[0]))
    is_own = name not in EXAMPLES and name not in {held.id for held in BY_CONSTRUCTION}
    return is_own, name[0] != "V", name[0], int(number or 0), name


def _approximate(rule: str) -> str:
    """Return the word for an inexact rule: "approximate" with the agreement ratio of its example's two forms, or "policy"."""
    share = agreement_ratio(rule) if rule in EXAMPLES else None
    return "policy" if share is None else f"approximate ({share:.3f})"


def rules_table() -> str:
    """Return the table of rules in Markdown."""
    rule = ["---"] * len(COLUMNS)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (COLUMNS, rule, *rows()))

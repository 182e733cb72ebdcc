"""The section on search policies of docs/measured/table.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import reports

from syno.paper.replay.comparison import Contender, Searches, p_value, quartiles, summary
from syno.paper.replay.table import OperatorTable, Subset
from syno.search.policies import POLICIES
from syno.search.policies.mcts import PRESETS

PUBLISHED = "mcts, published"
SEARCHES, TRIALS = 100, 60


def contenders() -> list[Contender]:
    """All policies with their defaults, and the presets of mcts."""
    others = [Contender(name, name) for name in ("random", *POLICIES) if name != "mcts"]
    presets = [Contender(f"mcts, {name}", "mcts", preset.model_dump()) for name, preset in PRESETS.items()]
    return list({one.name: one for one in (*others, *presets)}.values())


def policies(table: OperatorTable, searches: Sequence[Searches]) -> list[str]:
    rows = summary(searches)
    columns = list(rows[0])
    cells = [["–" if row[name] is None else str(row[name]) for name in columns] for row in rows]
    return [
        "## Search policies",
        "",
        *reports.paragraph(
            f"{SEARCHES} searches of {TRIALS} trials with each policy: `syno bench policies` does the same. *natural*: without "
            "requirements; *required*: with them. Success is judged by seed 0, which the search sees, and, in the last but one "
            "column, by the means of the seeds. p: one-sided Mann-Whitney test that a policy takes fewer trials than "
            "random search "
            "on the same operators."
        ),
        "",
        *reports.table(columns, cells, left=2),
        "",
        *against_published(searches),
        "",
        "![Lowest error so far](../images/table-policies.svg)",
        "",
        *finite(table),
    ]


def against_published(searches: Sequence[Searches]) -> list[str]:
    """How much sooner each policy with requirements succeeds than the published search without."""
    published = next(one for one in searches if (one.contender.name, one.subset) == (PUBLISHED, Subset.NATURAL))
    blind = median(published.trials_to_success)
    rows = []
    for one in searches:
        if one.subset == Subset.REQUIRED:
            middle = quartiles(one.trials_to_success)[1]
            reference = min(blind, TRIALS)
            sign = ">= " if blind > TRIALS else ""
            ratio = "–" if middle > TRIALS else f"{sign}{reference / middle:.1f}"
            rows.append([one.contender.name, ratio, f"{p_value(one.trials_to_success, published.trials_to_success):.1e}"])
    return [
        "With requirements, against published mcts without (median trials of the latter / median trials, and p of the "
        "same test):",
        "",
        *reports.table(["policy", "ratio", "p"], rows),
    ]


def finite(table: OperatorTable) -> list[str]:
    counts = {name: len(table.subset(name)) for name in (Subset.NATURAL, Subset.REQUIRED)}
    among = sum(one.meets for one in table.subset(Subset.NATURAL).values())
    good = {name: sum(table.succeeds(one, 0) for one in table.subset(name).values()) for name in counts}
    return [
        "What a replay on a finite sample means:",
        "",
        *reports.paragraph(
            f"- A search without requirements draws from {counts[Subset.NATURAL]} operators, of which {among} meet "
            f"the requirement "
            f"and {good[Subset.NATURAL]} succeed; one with requirements from {counts[Subset.REQUIRED]}, of which "
            f"{good[Subset.REQUIRED]} succeed. Nothing is drawn twice, so that a long search exhausts the sample, "
            f"which a live one "
            "does not."
        ),
        *reports.paragraph(
            "- Walks draw every operator that is left with equal chances, as walks in the whole space drew them into "
            "the sample. The "
            "tree has only the steps that lead to the sample. A policy that prefers some steps therefore has fewer "
            "near relatives of "
            "a good operator to choose from than it has live, and may gain less."
        ),
        *reports.paragraph(
            "- The required operators were drawn by walks and filtered. A live search with requirements prunes steps "
            "instead, so "
            "that its chances differ somewhat."
        ),
        *reports.paragraph(
            "- The sample is one draw. The quartiles above are over the seeds of the searches and do not include it."
        ),
    ]

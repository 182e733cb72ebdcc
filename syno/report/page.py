"""An experiment on one page of HTML, which needs no other file and no network."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from syno.report.document import document
from syno.report.inline_svg import inline_svg
from syno.report.operators.gallery import cards, order_name
from syno.report.page_tables import latencies, summary, targets, trial_lines
from syno.report.results import TRIAL_COLUMNS, Picture, Results, complete
from syno.report.search_tree import search_tree


def page(results: Results, pictures: Sequence[Picture]) -> str:
    """Tables, pictures and operators as one HTML document. All that is given appears as text, but for the pictures.

    The part of its address after `#` is what is looked at: `#filter=conv`, `#sort=FLOPs`, `#card=<operator>`, joined by `&`.

    Raises SpecError if a table lacks a column, or a picture is no SVG that stands alone.
    """
    tree = search_tree(results.trials)
    return document(
        "page.html",
        results=results,
        metric=results.metric,
        summary=summary(results),
        trials=trial_lines(results),
        outcomes=_outcomes(results),
        pictures=[(picture, Markup(inline_svg(picture.svg, f"figure-{n}"))) for n, picture in enumerate(pictures, 1)],
        tree=tree,
        tree_svg=None if tree is None else Markup(inline_svg(tree.svg, "search-tree")),
        cards=cards(results),
        orders=orders(results),
    )


def orders(results: Results) -> list[tuple[str, bool]]:
    """What cards can be sorted by, and whether most is best."""
    timed = map(order_name, targets(latencies(results).values()))
    return [(results.metric.name, results.metric.more_is_better), ("FLOPs", False), *((name, False) for name in timed)]


def _outcomes(results: Results) -> str:
    """`30 trials: 22 complete, 5 pruned, 3 failed`."""
    counts = complete(results.trials, TRIAL_COLUMNS, "trials")["outcome"].value_counts()
    total = f"{counts.sum():,} trial{'' if counts.sum() == 1 else 's'}"
    return total + (": " + ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()) if len(counts) else "")

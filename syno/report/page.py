"""The page of an experiment: one document of HTML that needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from syno.report.inline_svg import inline_svg
from syno.report.operators.gallery import cards, order_name
from syno.report.page_tables import latencies, summary, targets, trial_lines
from syno.report.results import TRIAL_COLUMNS, Picture, Results, complete
from syno.report.search_tree import search_tree


def page(results: Results, pictures: Sequence[Picture]) -> str:
    """Return tables, pictures and operators as one HTML document. All texts are escaped; the pictures become part of it.

    The part of its address after `#` selects what it shows: `#filter=conv`, `#sort=FLOPs`, `#card=<operator>`, joined by `&`.

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
    """Return the quantities that cards can be sorted by, and whether more is better."""
    timed = map(order_name, targets(latencies(results).values()))
    return [(results.metric.name, results.metric.more_is_better), ("FLOPs", False), *((name, False) for name in timed)]


def _outcomes(results: Results) -> str:
    """Return how many trials there are, and how they ended: `30 trials: 22 complete, 5 pruned, 3 failed`."""
    counts = complete(results.trials, TRIAL_COLUMNS, "trials")["outcome"].value_counts()
    total = f"{counts.sum():,} trial{'' if counts.sum() == 1 else 's'}"
    return total + (": " + ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()) if len(counts) else "")


def document(template: str, **values: Any) -> str:
    """Return a template as a whole document, with the styles and the script in it. Values are escaped, except for `Markup`."""
    environment = Environment(
        loader=PackageLoader("syno.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = _part(environment, "page.js")
    return environment.get_template(template).render(
        **values,
        styles=_part(environment, "page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _part(environment: Environment, name: str) -> Markup:
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0].rstrip("\n"))

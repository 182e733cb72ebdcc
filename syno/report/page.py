"""An experiment on one page of HTML, which needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from syno.report.gallery import cards, order_name
from syno.report.inline_svg import inline_svg
from syno.report.page_tables import latencies, summary, targets, trial_lines
from syno.report.results import TRIAL_COLUMNS, Picture, Results, complete


def page(results: Results, pictures: Sequence[Picture]) -> str:
    """Tables, pictures and operators as one HTML document. All that is given appears as text, but for the pictures.

    The part of its address after `#` is what is looked at: `#filter=conv`, `#sort=FLOPs`, `#card=<operator>`, joined by `&`.

    Raises SpecError if a table lacks a column, or a picture is no SVG that stands alone.
    """
    environment = Environment(
        loader=PackageLoader("syno.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = _part(environment, "page.js")
    metric, timed = results.metric, map(order_name, targets(latencies(results).values()))
    return environment.get_template("page.html").render(
        results=results,
        metric=metric,
        summary=summary(results),
        trials=trial_lines(results),
        outcomes=_outcomes(results),
        pictures=[(picture, Markup(inline_svg(picture.svg, f"figure-{n}"))) for n, picture in enumerate(pictures, 1)],
        cards=cards(results),
        orders=[(metric.name, metric.more_is_better), ("FLOPs", False), *((name, False) for name in timed)],
        styles=_part(environment, "page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _part(environment: Environment, name: str) -> Markup:
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0].rstrip("\n"))


def _outcomes(results: Results) -> str:
    """`30 trials: 22 complete, 5 pruned, 3 failed`."""
    counts = complete(results.trials, TRIAL_COLUMNS, "trials")["outcome"].value_counts()
    total = f"{counts.sum():,} trial{'' if counts.sum() == 1 else 's'}"
    return total + (": " + ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()) if len(counts) else "")

"""The page of an experiment: one document of HTML that needs no other file and no network.

SVG pictures become part of it: their ids and styles are renamed so that no picture changes another.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from syno.base.addresses import visible
from syno.base.errors import SpecError
from syno.report.commands import best_to_take, usages
from syno.report.layer_tables import layer_table, network_table
from syno.report.operators.gallery import cards, is_scored, order_name
from syno.report.page_tables import latencies, score_rows, summary, targets, trial_lines
from syno.report.results import TRIAL_COLUMNS, Picture, Results, complete, outcomes, rewarded
from syno.report.saturation import saturation
from syno.report.search_tree import search_tree
from syno.report.trial_points import trial_points
from syno.report.verdict import verdict_lines

SVG, XML = "http://www.w3.org/2000/svg", "http://www.w3.org/XML/1998/namespace"
DROPPED = {"metadata"}
FORBIDDEN = {"script", "foreignObject", "iframe", "animate", "set"}
ID_LISTS = {"aria-labelledby", "aria-describedby"}
_REFERENCE = re.compile(r"url\(\s*(['\"]?)#([^'\")]+)\1\s*\)")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")


@dataclass(frozen=True)
class Live:
    """The state of a search, which its page shows in place of a table of trained operators.

    Attributes:
        lines: how far the search is, in sentences.
        moment: when that was so, as text.
        reload_seconds: after which a browser loads the page again; None: it does not.
    """

    lines: Sequence[str]
    moment: str
    reload_seconds: int | None = None


def page(results: Results, pictures: Sequence[Picture], ablations: Sequence[object] = (), live: Live | None = None) -> str:
    """Return tables, pictures and operators as one HTML document. All texts are escaped; the pictures become part of it.

    With `live`, it is the page of a search: it begins with how far that is.

    The part of its address after `#` selects what it shows: `#filter=conv`, `#sort=FLOPs`, `#card=<operator>`, joined by `&`.

    Raises SpecError if a table lacks a column, or a picture is no SVG that stands alone.
    """
    verdict = verdict_lines(results)
    return document(
        "page.html",
        live=live,
        results=results,
        metric=results.metric,
        verdict=verdict,
        best=best_to_take(results, verdict),
        summary=summary(results),
        trials=trial_lines(results),
        counts=f"{operator_counts(results)}; {outcomes(results.trials)}",
        outcomes=outcomes(results.trials),
        saturation=saturation(complete(results.trials, TRIAL_COLUMNS, "trials")),
        pictures=pictures,
        network=network_table(results),
        layers=layer_table(results),
        tree=search_tree(results.trials, trial_points(results)),
        cards=cards(results),
        orders=orders(results),
        ablations=ablations,
        usages=lambda name: usages(results, name),
    )


def operator_counts(results: Results) -> str:
    """Return how many operators were found, and how many baselines they are compared with."""
    baselines = {str(row["operator"]) for row in score_rows(results) if row["role"] == "baseline"}
    found = len(results.operators.keys() - baselines)
    text = f"{found} operator{'' if found == 1 else 's'} found"
    if (
        results.scores.empty
        and results.latency.empty
        and results.layers.empty
        and not rewarded(complete(results.trials, TRIAL_COLUMNS, "trials")).empty
    ):
        text = f"the best {text.removesuffix(' found')} of the search" if found > 1 else text
    return f"{text}, {len(baselines)} baseline{'' if len(baselines) == 1 else 's'}" if baselines else text


def orders(results: Results) -> list[tuple[str, bool]]:
    """Return the quantities that cards can be sorted by, and whether more is better."""
    timed = map(order_name, targets(latencies(results).values()))
    best = (results.metric.name, results.metric.more_is_better) if is_scored(results) else ("reward", True)
    return [best, ("FLOPs", False), *((name, False) for name in timed)]


def document(template: str, **values: Any) -> str:
    """Return a template as a whole document, with the styles and the script in it. Values are escaped, except for `Markup`.

    Characters that hide or reorder text are shown as escapes.
    """
    environment = Environment(
        loader=PackageLoader("syno.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["inline_svg"] = inline_svg
    script = _part(environment, "page.js")
    rendered = environment.get_template(template).render(
        **values,
        styles=_part(environment, "page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return visible(rendered)


def _part(environment: Environment, name: str) -> Markup:
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0].rstrip("\n"))


# ---- SVG documents as parts of a page -------------------------------------------------------------------------------


def inline_svg(document: str, prefix: str) -> Markup:
    """Return the document as an `<svg>` element whose ids all begin with `prefix`, and whose styles apply to nothing else.

    It is a filter of the templates: `{{ svg|inline_svg("figure-1") }}`.

    Raises SpecError if it is no SVG, holds a script, or refers to anything outside itself.
    """
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise SpecError(f"not an SVG document: {error}; it begins: {document[:60]!r}") from error
    if root.tag not in ("svg", f"{{{SVG}}}svg"):
        raise SpecError(f"an SVG document begins with <svg>; given: <{root.tag}>")
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child.tag) in DROPPED]:
            parent.remove(child)
    for element in root.iter():
        _inline(element, prefix)
    root.set("id", prefix)
    return Markup(ElementTree.tostring(root, encoding="unicode").strip())


def _inline(element: ElementTree.Element, prefix: str) -> None:
    element.tag = _name(element.tag)
    if element.tag in FORBIDDEN:
        raise SpecError(f"an SVG picture on the page holds no <{element.tag}>")
    given = dict(element.attrib)
    element.attrib.clear()
    for name, value in given.items():
        element.set(_name(name), _attribute(_name(name), value, prefix))
    if element.tag == "style":
        element.text = _scoped(element.text or "", prefix)


def _name(name: str) -> str:
    """Return the name in HTML of `{namespace}name`."""
    space, _, local = name.rpartition("}")
    return f"xml:{local}" if space == f"{{{XML}" else local


def _attribute(name: str, value: str, prefix: str) -> str:
    if name.lower().startswith("on"):
        raise SpecError(f'an SVG picture on the page holds no script; given: {name}="{value[:60]}"')
    if name == "id":
        return f"{prefix}-{value}"
    if name in ID_LISTS:
        return " ".join(f"{prefix}-{word}" for word in value.split())
    if name in ("href", "src") and not value.startswith("data:image/png"):
        if not value.startswith("#"):
            raise SpecError(f'an SVG picture on the page refers to nothing outside itself; given: {name}="{value[:60]}"')
        return f"#{prefix}-{value[1:]}"
    return _local(value, prefix)


def _scoped(styles: str, prefix: str) -> str:
    """Return style rules that apply within the picture only."""
    if "@" in styles:
        raise SpecError(f"styles of an SVG picture on the page have no @ rules; given: {styles.strip()[:60]!r}")
    rules = [
        f"{', '.join(f'#{prefix} {selector.strip()}' for selector in selectors.split(','))} {{{_local(body, prefix)}}}"
        for selectors, body in _RULE.findall(re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL))
    ]
    return "\n".join(rules)


def _local(text: str, prefix: str) -> str:
    """Return the text with its references to ids renamed. SpecError for other references."""
    renamed = _REFERENCE.sub(lambda found: f"url(#{prefix}-{found[2]})", text)
    if renamed.lower().count("url(") != len(_REFERENCE.findall(text)):
        raise SpecError(f"an SVG picture on the page refers to nothing outside itself; given: {text.strip()[:60]!r}")
    return renamed

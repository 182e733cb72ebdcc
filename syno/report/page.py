"""The page of an experiment: one document of HTML that needs no other file and no network.

SVG pictures become part of it: their ids and styles are renamed so that no picture changes another.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from syno.base.addresses import visible
from syno.base.errors import SpecError
from syno.base.text_tables import plural
from syno.report.commands import best_to_take, usages
from syno.report.figures import GREY, INK, Picture
from syno.report.layer_tables import layer_table, mixture_table, network_table
from syno.report.operators.gallery import cards, is_scored, order_name
from syno.report.page_tables import latencies, score_rows, summary, targets, trial_lines
from syno.report.points import NO_POINTS, Point, label
from syno.report.search_rewards import saturation
from syno.report.trial_points import TrialPoints
from syno.run.run import Run, outcomes
from syno.run.story import mixture_notes, verdict_lines
from syno.run.values import Trial

# A picture of the search tree: how often the search took each step, and the mean reward of its trials.
#
# Trials whose paths begin with the same steps share branches. A branch is a row of steps at which the tree does not fork.


MOST_LEAVES = 160  # in a picture; with more, it cannot be read
STEP, ROW, MARGIN, HEAD = 52, 13, 26, 44  # pixels for a step, for a leaf, around the tree, for the legend
LARGEST, LEAST_RADIUS = 15.0, 2.0  # the radius for all trials, and the least radius
LABEL = 150  # pixels for the text at the last leaf
SCALE, SWATCHES, UNKNOWN = "viridis", 24, "#bbbbbb"  # the colour map of mean rewards; the colour without a reward


class Walk(NamedTuple):
    """A trial's path in the search tree: (kind, id) of each step, and its reward if it is complete."""

    number: int
    steps: tuple[tuple[str, str], ...]
    reward: float | None


@dataclass(frozen=True)
class Branch:
    """The steps from one fork of the tree to the next, and the subtree behind them.

    Attributes:
        kinds: The kinds of the steps.
        depth: The number of steps from the root to its end.
        walks: The trials that go through it.
        children: The next branches, the most visited first.
    """

    kinds: tuple[str, ...]
    depth: int
    walks: tuple[Walk, ...]
    children: tuple[Branch, ...]

    @property
    def mean(self) -> float | None:
        """The mean reward of the complete trials through the branch; None if there is none."""
        rewards = [walk.reward for walk in self.walks if walk.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None

    def leaves(self, least: int = 1) -> int:
        """Return the number of leaves of the subtree, after branches with fewer than `least` trials are removed."""
        return sum(child.leaves(least) for child in self.children if len(child.walks) >= least) or 1

    def cut(self, least: int) -> Branch:
        """Return the branch without sub-branches that have fewer than `least` trials."""
        children = tuple(child.cut(least) for child in self.children if len(child.walks) >= least)
        return Branch(self.kinds, self.depth, self.walks, children)


def grown(walks: Sequence[Walk], depth: int = 0, kinds: tuple[str, ...] = ()) -> Branch:
    """Return the tree of walks that share their first `depth` steps, the last of which have these kinds."""
    groups: dict[tuple[str, str], list[Walk]] = {}
    for walk in walks:
        if depth < len(walk.steps):
            groups.setdefault(walk.steps[depth], []).append(walk)
    if kinds and len(groups) == 1 and all(depth < len(walk.steps) for walk in walks):  # no fork here
        ((kind, _),) = groups
        return grown(walks, depth + 1, (*kinds, kind))
    children = [grown(group, depth + 1, (kind,)) for (kind, _), group in groups.items()]
    return Branch(kinds, depth, tuple(walks), tuple(sorted(children, key=lambda child: -len(child.walks))))


def search_tree(trials: Sequence[Trial], points: Mapping[int, Point] = NO_POINTS) -> Picture | None:
    """Return a picture of the search tree; None if the trials have no paths. `points` are tooltips by the trial's number.

    The area of a circle is proportional to the number of trials that go through it. Its colour is their mean reward, and its
    tooltip shows both numbers. Its distance from the left is its number of steps.
    """
    if not any(trial.steps for trial in trials):
        return None
    root, least = grown([_walk(trial) for trial in trials]), 1
    while root.leaves(least) > MOST_LEAVES:
        least += 1
    shown = root.cut(least)
    left_out = f" Branches with fewer than {least} trials are left out." if least > 1 else ""
    caption = (
        f"The steps of {len(root.walks):,} trials, from left to right. Trials that begin with the same steps share a line, and "
        "a line without a fork may stand for several steps. The area of a circle is proportional to the number of trials that "
        "go through it. Its colour is the mean reward of the complete ones; it is grey if none is complete. Point at a "
        f"circle for its numbers.{left_out}"
    )
    return Picture("The search tree", ElementTree.tostring(_drawing(shown, points), encoding="unicode"), caption)


def _walk(trial: Trial) -> Walk:
    steps = tuple(zip(trial.path.split(), trial.steps.split(), strict=True))
    return Walk(trial.number, steps, trial.reward if trial.outcome == "complete" else None)


class Placed(NamedTuple):
    """A branch of the drawn tree, the position (x, y) of its end, and of its parent's end (None at the root)."""

    branch: Branch
    at: tuple[float, float]
    parent: tuple[float, float] | None


def _placed(branch: Branch, top: float, parent: tuple[float, float] | None = None) -> Iterator[Placed]:
    """Yield the branch and its subtree with their positions. The subtree takes a row for each leaf, downwards from `top`."""
    at = (MARGIN + STEP * branch.depth, top + ROW * branch.leaves() / 2)
    yield Placed(branch, at, parent)
    for child in branch.children:
        yield from _placed(child, top, at)
        top += ROW * child.leaves()


def _drawing(root: Branch, points: Mapping[int, Point]) -> ElementTree.Element:
    places = list(_placed(root, HEAD + MARGIN))
    means = [mean for place in places if (mean := place.branch.mean) is not None] or [0.0]
    low, high = min(means), max(means)
    width = max(place.at[0] for place in places) + LABEL
    height = HEAD + 2 * MARGIN + ROW * root.leaves()
    svg = ElementTree.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width:.0f} {height:.0f}", "width": f"{width:.0f}",
        "height": f"{height:.0f}", "role": "img", "aria-label": "The search tree", "font-family": "sans-serif",
        "font-size": "9",
    })  # fmt: skip
    _legend(svg, low, high)
    for place in places:
        if place.parent is not None:
            _edge(svg, place.parent, place.at)
    for place in places:
        _circle(svg, place, len(root.walks), _colour(place.branch.mean, low, high), points)
    return svg


def _edge(svg: ElementTree.Element, start: tuple[float, float], end: tuple[float, float]) -> None:
    middle = start[0] + min(STEP, end[0] - start[0]) / 2
    bend = f"C{middle:.1f} {start[1]:.1f} {middle:.1f} {end[1]:.1f} {start[0] + STEP:.1f} {end[1]:.1f}"
    path = f"M{start[0]:.1f} {start[1]:.1f}{bend}H{end[0]:.1f}"
    ElementTree.SubElement(svg, "path", {"d": path, "fill": "none", "stroke": "#cccccc"})


def _circle(svg: ElementTree.Element, place: Placed, total: int, colour: str, points: Mapping[int, Point]) -> None:
    branch, (x, y) = place.branch, place.at
    radius = max(LEAST_RADIUS, LARGEST * sqrt(len(branch.walks) / total))
    circle = ElementTree.SubElement(svg, "circle", {
        "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{radius:.1f}", "fill": colour, "stroke": INK, "stroke-width": "0.5",
    })  # fmt: skip
    only = points.get(branch.walks[0].number) if len(branch.walks) == 1 else None
    label(circle, Point(_tooltip(branch)) if only is None else Point(f"{only.text}; {', '.join(branch.kinds)}", only.operator))
    if branch.children:
        return
    text = {"x": f"{x + radius + 3:.1f}", "y": f"{y + 3:.1f}", "fill": GREY}
    ElementTree.SubElement(svg, "text", text).text = _leaf_text(branch)


def _tooltip(branch: Branch) -> str:
    """Return a branch's tooltip, such as `Unfold, Share: 12 trials, mean reward 0.431`."""
    count, mean = len(branch.walks), branch.mean
    steps = ", ".join(branch.kinds) or "all"
    reward = "none complete" if mean is None else f"mean reward {mean:.3f}"
    return f"{steps}: {_trial_count(branch)}, {reward}" if count > 1 else f"{steps}: {_leaf_text(branch)}"


def _leaf_text(branch: Branch) -> str:
    """Return the text beside a leaf of the tree: the number of its only trial, or how many trials it has."""
    if len(branch.walks) > 1:
        return _trial_count(branch)
    (walk,) = branch.walks
    return f"trial {walk.number}" + ("" if walk.reward is None else f": {walk.reward:.3f}")


def _trial_count(branch: Branch) -> str:
    return plural(len(branch.walks), "trial", ",")


def _colour(mean: float | None, low: float, high: float) -> str:
    if mean is None:
        return UNKNOWN
    share = (mean - low) / (high - low) if high > low else 0.5
    return to_hex(mpl.colormaps[SCALE](share))


def _legend(svg: ElementTree.Element, low: float, high: float) -> None:
    group = ElementTree.SubElement(svg, "g", {"transform": f"translate({MARGIN} 14)"})
    ElementTree.SubElement(group, "text", {"y": "0", "fill": GREY}).text = "mean reward"
    for place in range(SWATCHES):
        colour = _colour(place / (SWATCHES - 1), 0.0, 1.0)
        ElementTree.SubElement(group, "rect", {"x": f"{6 * place}", "y": "6", "width": "6", "height": "9", "fill": colour})
    for x, anchor, value in ((0, "start", low), (6 * SWATCHES, "end", high)):
        text = {"x": f"{x}", "y": "26", "fill": GREY, "text-anchor": anchor}
        ElementTree.SubElement(group, "text", text).text = f"{value:.3f}"


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
        lines: sentences about the progress of the search.
        moment: the time of this state, as text.
        reload_seconds: seconds after which a browser loads the page again; None for never.
    """

    lines: Sequence[str]
    moment: str
    reload_seconds: int | None = None


def page(run: Run, pictures: Sequence[Picture], ablations: Sequence[object] = (), live: Live | None = None) -> str:
    """Return tables, pictures and operators as one HTML document. All texts are escaped; the pictures become part of it.

    With `live`, it is the page of a running search, and begins with its progress.

    The part of its address after `#` selects what it shows: `#filter=conv`, `#sort=FLOPs`, `#card=<operator>`, joined by `&`.

    Raises SpecError if a picture is no SVG that stands alone.
    """
    verdict = verdict_lines(run)
    return document(
        "page.html",
        live=live,
        run=run,
        metric=run.metric,
        verdict=verdict,
        best=best_to_take(run, verdict),
        summary=summary(run),
        trials=trial_lines(run),
        counts=f"{operator_counts(run)}; {outcomes(run.trials)}",
        outcomes=outcomes(run.trials),
        saturation=saturation(run.trials),
        pictures=pictures,
        network=network_table(run),
        layers=layer_table(run),
        mixtures=mixture_table(run),
        mixture_notes=list(mixture_notes(run.choice)),
        tree=search_tree(run.trials, TrialPoints(run)),
        cards=cards(run),
        orders=orders(run),
        ablations=ablations,
        usages=lambda name: usages(run, name),
    )


def operator_counts(run: Run) -> str:
    """Return the numbers of synthesized operators and of baselines on the page, in words."""
    by_role = {role: {row.operator for row in score_rows(run) if row.role == role} for role in ("baseline", "rival")}
    baselines = by_role["baseline"]
    found = len(run.operators.keys() - baselines - by_role["rival"])
    is_measured = bool(run.scores or run.latencies or run.layers)
    is_of_search = found > 1 and not is_measured and any(trial.is_rewarded for trial in run.trials)
    operators = plural(found, "operator")
    text = f"the best {operators} of the search" if is_of_search else f"{operators} found"
    beside = [plural(len(names), role) for role, names in by_role.items() if names]
    return ", ".join([text, *beside])


def orders(run: Run) -> list[tuple[str, bool]]:
    """Return the quantities by which cards can be sorted, each with whether a higher value is better."""
    timed = map(order_name, targets(latencies(run).values()))
    best = (run.metric.name, run.metric.more_is_better) if is_scored(run) else ("reward", True)
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
    """Return the HTML name of an ElementTree name `{namespace}name`."""
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
    """Return a picture's CSS rules, limited to the element with the id `prefix`."""
    if "@" in styles:
        raise SpecError(f"styles of an SVG picture on the page have no @ rules; given: {styles.strip()[:60]!r}")
    rules = [
        f"{', '.join(f'#{prefix} {selector.strip()}' for selector in selectors.split(','))} {{{_local(body, prefix)}}}"
        for selectors, body in _RULE.findall(re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL))
    ]
    return "\n".join(rules)


def _local(text: str, prefix: str) -> str:
    """Return an attribute or style with `prefix` added to its references to ids. SpecError for external references."""
    renamed = _REFERENCE.sub(lambda found: f"url(#{prefix}-{found[2]})", text)
    if renamed.lower().count("url(") != len(_REFERENCE.findall(text)):
        raise SpecError(f"an SVG picture on the page refers to nothing outside itself; given: {text.strip()[:60]!r}")
    return renamed

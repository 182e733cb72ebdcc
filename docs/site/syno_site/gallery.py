"""The gallery of operators, in place of `<!-- gallery: known -->` on a page; also `published` and `quickstart`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import syno
from syno.base.errors import SynoError
from syno.base.text_tables import markdown
from syno.config.files import load_experiment
from syno.ir.graph import PGraph
from syno.ir.read_pattern import example_values
from syno.paper.artifact.operators import Folder, PublishedEntry, entries, read_folders
from syno.paper.numbers import TEST_DATA
from syno.report.operators.gallery import cards
from syno.report.operators.words import in_words
from syno.stages.results import read

ROOT = Path(__file__).parents[3]
ARTIFACT = "SYNO_ARTIFACT"
MARK = re.compile(r"^<!-- gallery: (\w+) -->$", re.MULTILINE)
NO_ARTIFACT = f"""This site was built without the published data. Get the data of the paper's artifact, and build it again:

```
{ARTIFACT}=<its data folder> make docs
```
"""
NO_RESULTS = """The demo was not run before this site was built. Run it, and build the site again:

```
make demo docs
```
"""


def completed(text: str) -> str:
    """Return a page's text with operators in place of the marks."""
    return MARK.sub(lambda mark: PARTS[mark[1]](), text)


def operator_text(operator: PGraph, facts: Mapping[str, str] | None = None, about: str = "") -> str:
    """Return an operator in Markdown: name, drawing, formula, reading in words, cost at example sizes, code.

    Args:
        operator: the operator.
        facts: what else is known about it, by heading.
        about: a sentence below its name.
    """
    drawing = " ".join(syno.to_svg(operator).split())
    words = in_words(operator).rstrip().splitlines()
    sentence = words[-1].removeprefix("In words: ") if words[-1].startswith("In words: ") else ""
    parts = [f"## {operator.name}", about, f"It {sentence}" if sentence else ""]
    parts.append(markdown([facts], left=len(facts)) if facts else "")
    parts.append(f'<div class="operator" tabindex="0">{drawing}</div>')
    parts.append(_block(_lines(syno.expression(operator)), "text"))
    parts += [_collapsed(title, block) for title, block in _codes(operator)]
    return "\n\n".join(filter(None, parts))


def _lines(formula: str) -> str:
    """Return a formula with its weights, and its conditions, on lines of their own."""
    return formula.replace(" * w", "\n    * w").replace("  where ", "\n    where ").replace(" and ", "\n      and ")


def _codes(operator: PGraph) -> Iterator[tuple[str, str]]:
    """Yield titles and blocks of what is collapsed."""
    values = example_values(operator)
    yield "PyTorch", _code(lambda: syno.to_source(operator), "python")
    yield "Loops", _code(lambda: syno.loop_nest(operator), "python")
    sizes = ", ".join(f"{name}={value}" for name, value in values.items())
    yield f"Cost at {sizes}", _code(lambda: str(syno.plan(operator, values)), "text")
    yield "Text", _block(str(operator), "text")


def _code(write: Callable[[], str], language: str) -> str:
    try:
        return _block(write(), language)
    except SynoError as error:
        return f"There is none for this operator: {error}"


def _block(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _collapsed(title: str, block: str) -> str:
    return f"<details>\n<summary>{escape(title)}</summary>\n\n{block}\n\n</details>"


def known() -> str:
    """Return the operators of `syno.OPERATORS`."""
    return "\n\n".join(operator_text(make(), about=_formula(make.__doc__ or "")) for make in syno.OPERATORS.values())


def _formula(docstring: str) -> str:
    """Return the first paragraph of a docstring, in which the formula is code."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return f"`{paragraph.removesuffix('.')}`"


def published() -> str:
    """Return the operators of the published data, or how to get them."""
    data = Path(os.environ.get(ARTIFACT, ""))
    if not os.environ.get(ARTIFACT) or not data.is_dir():
        return NO_ARTIFACT
    folders = list(read_folders(data, []))
    found = list(entries(data, folders, []).values())
    facts = {entry.path: _published_facts(entry, [one for one in folders if one.meta.path == entry.path]) for entry in found}
    drawn = [operator_text(entry.graph.renamed(entry.name), facts[entry.path]) for entry in found if entry.graph is not None]
    others = [{"operator": f"`{entry.name}`", **facts[entry.path]} for entry in found if entry.graph is None]
    table = markdown(others, left=5)
    rest = f"## Without a graph\n\nOf these, the data has numbers, but no graph.\n\n{table}" if others else ""
    return "\n\n".join([*drawn, rest])


def _published_facts(entry: PublishedEntry, folders: Sequence[Folder]) -> dict[str, str]:
    """Return what was published about an operator, by heading: of the network and the data set of its search."""
    networks = sorted({folder.model for folder in folders})
    first = min(folders, key=lambda folder: (folder.data == TEST_DATA, folder.place))
    scores = {"accuracy": f"{first.meta.accuracy:.4f}"} if first.meta.accuracy else {"loss": f"{first.meta.loss:.3f}"}
    costs = {"FLOPs": f"{first.meta.flops:,}", "parameters": f"{first.meta.params:,}"}
    return {"network": ", ".join(networks), "data": first.data, **scores, **costs}


def quickstart() -> str:
    """Return the operators that the demo has found, the best first, or how to run it."""
    folder = ROOT / "results" / "quickstart"
    try:
        results = read(load_experiment(folder))
    except SynoError:
        return NO_RESULTS
    shown = []
    for card in cards(results):
        facts = {title: cell.text or "–" for title, cell in card.facts}
        about = f"{card.provenance[0].upper()}{card.provenance[1:]}." if card.provenance else ""
        shown.append(operator_text(results.operators[card.name].renamed(card.name), facts, about))
    return "\n\n".join(shown)


PARTS: dict[str, Callable[[], str]] = {"known": known, "published": published, "quickstart": quickstart}

"""The recipe for a new primitive: every place that has something for each primitive has it for all, and is in the recipe.

`PLACES` lists the modules that name primitives, with those that each leaves out and why. A primitive that is new fails there
with the module's name until the module handles it, or the table says why it need not.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import small_specs

import syno
from syno.ir import dim as dims
from syno.ir.builder import Builder
from syno.ir.drawing.diagram import FAMILIES
from syno.ir.drawing.svg import to_svg
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, REDUCE, SHARE, TABLE
from syno.ir.text import parse
from syno.lower.interpreter import interpret, shapes
from syno.lower.loops import to_c
from syno.lower.plan import plan_for
from syno.lower.pytorch.source import constructor_sizes, load_class, to_source
from syno.lower.tvm.source import to_te_source
from syno.space.candidates import LIKELY_FIRST, OPTIONS
from syno.space.facts import TWO_TOPS
from syno.space.options import Occurrences
from syno.space.space import Space
from syno.space.state import Counts
from syno.space.state_graph import UNBOUNDED
from syno.space.steps import CONTRACTION, FINALIZE, KINDS, ONE_MORE

ROOT = Path(syno.__file__).parents[1]
SIZES = {"N": 4, "M": 6, "k": 3, "b": 2}
LANGUAGE = "the language's rules on tensors need no more than these"
ABOVE_SHARES = "only what stands in a contraction"
SPECIAL = "the others are written by their index maps"
MOVED = "only views that can be moved past a contraction or into a view of the memory"
DUPLICATES = "it has rules on these; others need one if they commute or fuse with something"

PLACES = {  # module: the primitives that it leaves out, and why
    "ir/dim.py": ("", ""),
    "ir/drawing/diagram.py": ("", ""),
    "ir/graph.py": ("Split Merge Shift Expand Unfold Stride", LANGUAGE),
    "ir/rewriting.py": ("Split Merge Shift Expand Unfold Stride Reduce", "only weights are numbered, and only these anew"),
    "ir/structure.py": ("Split Merge Shift Expand Unfold Stride", LANGUAGE),
    "ir/support.py": ("Split Merge Shift Expand Stride Reduce Share", "only a window reads outside its axis"),
    "ir/text.py": ("", ""),
    "lower/cut.py": ("Split Merge Shift Unfold Stride Reduce", ABOVE_SHARES),
    "lower/native/nests.py": (
        "Split Merge Shift Stride Reduce Share",
        "indices are evaluated; only what repeats or leaves out elements is not part of the stage before",
    ),
    "lower/plan.py": ("Merge Unfold Stride Reduce", MOVED),
    "lower/pytorch/fused.py": ("Expand Stride Reduce", MOVED),
    "lower/pytorch/lowering.py": ("Reduce", "it is no view: stages sum"),
    "lower/tvm/source.py": ("Split Merge Expand Stride Reduce Share", SPECIAL),
    "report/operators/folder.py": ("Split Merge Shift Unfold Stride Reduce", ABOVE_SHARES),
    "space/candidates.py": ("Share", "it comes in a Contraction"),
    "space/distance/feasibility.py": ("Expand Stride Share", "the distance follows them by the facts of a dim"),
    "space/distance/sources.py": (
        "Split Merge Shift Expand Unfold Stride Share",
        "a dim above another primitive takes at most as many values as the dims below it",
    ),
    "space/facts.py": ("Shift Expand", "a Shift changes none of the facts, and no dim stands above an Expand"),
    "space/features.py": ("", ""),
    "space/identity/valuations.py": ("Shift Expand Stride Reduce", "only these change sizes that are compared"),
    "space/reach.py": ("Split Merge Shift Unfold Stride", "only these are parts of other steps"),
    "space/refusal.py": ("Shift Share", "nothing but a Stride below forbids a Shift; a Share comes in a Contraction"),
    "space/rules/forms.py": ("Shift Expand Unfold Reduce", DUPLICATES),
    "space/rules/guarantees.py": ("Split Expand Stride Reduce Share", "the distance asks for the rules on these alone"),
    "space/rules/order.py": ("Share", "it comes in a Contraction"),
    "space/rules/symmetry.py": ("Expand Stride Reduce", DUPLICATES),
    "space/rules/views.py": ("Expand Share", DUPLICATES),
    "space/steps.py": ("Share", "it comes in a Contraction"),
}
WITHOUT_NAMES = {  # further places of the recipe, which hold something for each primitive under another name
    "ir/builder.py",
    "ir/primitives.py",
    "lower/pytorch/source.py",
    "space/options.py",
    "space/state.py",
    "space/state_graph.py",
}


def primitives_named(module: Path) -> set[str]:
    """The primitives that a module imports, or reads as `primitives.NAME`; all of them if it reads the table."""
    found: set[str] = set()
    text = module.read_text(encoding="utf-8")
    if "primitives" not in text:  # most modules: all processes of pytest read them before the first test
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "syno.ir.primitives":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "primitives":
            found.add(node.attr)
    return set(TABLE) if "TABLE" in found else {name for name in TABLE if name.upper() in found}


MODULES = {
    str(path.relative_to(ROOT / "syno")): names
    for path in sorted((ROOT / "syno").rglob("*.py"))
    if "paper" not in path.parts and (names := primitives_named(path))  # an extension, which reads what was published
}


def test_each_module_that_names_primitives_is_listed_here() -> None:
    assert sorted(PLACES) == sorted(MODULES)


@pytest.mark.parametrize("place", PLACES)
def test_it_names_every_primitive_or_says_why_not(place: str) -> None:
    left_out, why = PLACES[place]
    forgotten = set(TABLE) - MODULES[place] - {*left_out.split()}
    assert not forgotten, f"syno/{place} knows nothing of {', '.join(forgotten)}: handle it there, or say here why not"
    assert not MODULES[place] & {*left_out.split()}, f"syno/{place} names what {__name__} says that it leaves out"
    assert bool(left_out) == bool(why)


def test_the_recipe_names_every_place() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    recipe = text.split("A **primitive** is", 1)[1].split("\n## ", 1)[0]
    assert [place for place in sorted({*PLACES, *WITHOUT_NAMES}) if f"`{place}`" not in recipe] == []


# ---- tables --------------------------------------------------------------------------------------------------------------


def test_the_tables_for_writing_operators_have_every_primitive() -> None:
    for name in TABLE:
        assert callable(getattr(dims, name.lower(), None)), f"no function {name.lower()} in syno/ir/dim.py"
        assert callable(getattr(Builder, name.lower(), None)), f"no method {name.lower()} in syno/ir/builder.py"
    drawn = set(FAMILIES) | {REDUCE.name}  # a Reduce is drawn as the end of its dim
    assert drawn == set(TABLE), "FAMILIES in syno/ir/drawing/diagram.py"


def test_the_tables_for_searching_have_every_primitive() -> None:
    views = {row for row in TABLE.values() if row is not SHARE}
    proposed = views | {CONTRACTION}
    assert {*KINDS.values()} == proposed | {FINALIZE}, "KINDS in syno/space/steps.py"
    assert {*ONE_MORE} == views, "ONE_MORE in syno/space/steps.py"
    assert all(more.steps == 1 for more in ONE_MORE.values()), "ONE_MORE in syno/space/steps.py"
    assert len({*ONE_MORE.values()}) == len(views), "ONE_MORE in syno/space/steps.py counts two primitives as one"
    assert {*OPTIONS} == proposed, "OPTIONS in syno/space/candidates.py"
    assert {counted for counted, _ in OPTIONS.values()} | {"shares"} == {*Counts._fields}, "Counts in syno/space/state.py"
    assert {option for _, option in OPTIONS.values()} <= {*get_type_hints(Occurrences)}, "Occurrences in syno/space/options.py"
    assert {*LIKELY_FIRST} == proposed, "LIKELY_FIRST in syno/space/candidates.py"
    assert {*TWO_TOPS} == {row for row in TABLE.values() if len(row.tops) > 1}, "TWO_TOPS in syno/space/facts.py"
    single = {option for kind, (_, option) in OPTIONS.items() if kind not in (REDUCE, CONTRACTION, EXPAND)}
    assert {*UNBOUNDED} == single, "UNBOUNDED in syno/space/state_graph.py"
    proposers = Space(small_specs.matmul()).candidates.proposers
    assert {*proposers} == proposed, "proposers in syno/space/candidates.py"


# ---- an operator with each -----------------------------------------------------------------------------------------------

OPERATORS = {  # each with a weight, so that there is a contraction beside it
    "Split": "output i:N, j:M; a:N*M = Split(i, j); d:N*M = Share(a, w1[0]); input d:N*M; weight w1[N*M]",
    "Merge": "output i:b*N; q:N, r:b = Merge(i, b); d:N = Share(q, w1[0]); input d:N, r:b; weight w1[N]",
    "Shift": "output i:N; a:N = Shift(i, 1); d:N = Share(a, w1[0]); input d:N; weight w1[N]",
    "Expand": "output i:N, j:M; Expand(j); d:N = Share(i, w1[0]); input d:N; weight w1[N]",
    "Unfold": "output i:N; r:k = Reduce(); v:k = Share(r, w1[0]); a:N = Unfold(i, v); input a:N; weight w1[k]",
    "Stride": (
        "output i:N; r:k = Reduce(); v:k = Share(r, w1[0]); s:b*k = Stride(v, b); a:N = Unfold(i, s); input a:N; weight w1[k]"
    ),
    "Reduce": "output i:N; r:M = Reduce(); d:M = Share(r, w1[0]); input i:N, d:M; weight w1[M]",
    "Share": "output i:N; d:N = Share(i, w1[0]); input d:N; weight w1[N]",
}


@pytest.mark.parametrize("name", TABLE)
def test_an_operator_with_it_can_be_written_drawn_and_lowered(name: str) -> None:
    assert name in OPERATORS, f"write an operator with {name} in OPERATORS"
    torch = pytest.importorskip("torch")
    graph = parsed(OPERATORS[name])
    assert f"{name}(" in str(graph)
    assert parse(str(graph)).id == graph.id
    assert name in to_svg(graph)
    plan = plan_for(graph, None, None)
    assert to_c(plan) and to_te_source(graph, plan=plan)
    valuation = graph.variables.valuation({name: SIZES[name] for name in graph.variables})
    data, weights, _ = shapes(graph, valuation)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) for shape in (data, *weights)]
    module = load_class(to_source(graph), graph)(**constructor_sizes(graph, valuation)).double()
    for parameter, array in zip(module.parameters(), arrays[1:], strict=True):
        parameter.data = torch.tensor(array)
    np.testing.assert_allclose(module(torch.tensor(arrays[0])).detach(), interpret(graph, valuation, *arrays))


def parsed(lines: str) -> PGraph:
    return parse("operator one\nvariables N, M; k, b\n" + lines.replace("; ", "\n"))

"""Every rule has an example, and does what it says on it."""

from __future__ import annotations

import pytest

from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.space import OperatorSpec
from syno.space.facts import FactTable
from syno.space.rules import RULES
from syno.space.rules.listing import EXAMPLES, VALUES, VARIABLES, agreement_ratio, forms, is_proven
from syno.space.sizes import SizeTable
from syno.space.state import Ends, State
from syno.space.steps import CandidateStep

VIEWS = [name for name, row in RULES.items() if name[0] == "V" and row.on] + ["U1", "U2", "U3"]
EXACT = [name for name, row in RULES.items() if row.exact and EXAMPLES[name].kept is not None]
APPROXIMATE = [name for name, row in RULES.items() if not row.exact and EXAMPLES[name].kept is not None]

RATIOS = {
    "V6": 1 - 1 / 8,  # the last of each block of 8 goes to the next block
    "V11": 1 - 2 * 15 / (16 * 8 * 3),  # one tap on each side of the borders between 16 blocks of 8
    "V12": 1 - 2 * 3 / (4 * 8 * 3),  # the paper's: of those between 4 blocks
}


def rejections(graph: PGraph, rule: str) -> set[str]:
    """Which primitives of the graph the rule rejects."""
    marked = EXAMPLES[rule].unordered[0]
    output = ", ".join(f"{dim.size}{': unordered' * (axis in marked)}" for axis, dim in enumerate(graph.output))
    spec = OperatorSpec(input="H", output=output, variables=VARIABLES, layers=[VALUES], windows={"odd": False})
    sizes = SizeTable(spec)
    facts, state = FactTable(spec, sizes), State((), (), Ends(sizes.none))
    found = set()
    for operation in graph.operations:
        parameter = operation.parameter if operation.primitive.name in ("Merge", "Stride") else None
        dims: tuple[Dim, ...] = operation.bottoms
        step = CandidateStep(spec, sizes, facts, state, operation.primitive, dims, parameter)  # type: ignore[arg-type]
        if operation.primitive in RULES[rule].looks_at and RULES[rule].rejects(step):
            found.add(operation.primitive.name)
    return found


def test_every_rule_has_an_example() -> None:
    assert set(EXAMPLES) == set(RULES)
    assert all(example.kept is not None or example.note for example in EXAMPLES.values())


@pytest.mark.parametrize("rule", VIEWS)
def test_a_rule_on_views_rejects_the_one_form_and_not_the_other(rule: str) -> None:
    rejected, kept = forms(rule)
    assert rejections(rejected, rule)
    assert kept is None or not rejections(kept, rule)


def test_exact_rules_without_a_second_form_are_about_order_or_symmetry() -> None:
    assert {name for name, row in RULES.items() if row.exact and EXAMPLES[name].kept is None} == {"C1", "C8", "S2"}


@pytest.mark.parametrize("rule", EXACT)
def test_both_forms_of_an_exact_rule_are_one_operator(rule: str) -> None:
    assert is_proven(rule)


@pytest.mark.parametrize("rule", APPROXIMATE)
def test_the_forms_of_an_approximate_rule_differ_and_say_how_much(rule: str) -> None:
    assert not is_proven(rule)
    share = agreement_ratio(rule)
    assert share is not None
    assert 0 <= share < 1


@pytest.mark.parametrize(("rule", "share"), RATIOS.items())
def test_agreement_ratios_known_by_hand(rule: str, share: float) -> None:
    assert agreement_ratio(rule) == pytest.approx(share)

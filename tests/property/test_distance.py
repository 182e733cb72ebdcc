"""The shape distance against the truth: never above it, nearly always equal."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
import small_specs
from quick_cases import quick_cases
from truth import Truth

from syno.space import OperatorSpec, Space, distance
from syno.space.distance.problem import UNREACHABLE
from syno.space.rules import RULES, RuleSet
from syno.space.rules.guarantees import ENSURED_BY, FIRST_DIM_ALONE, Guarantees, is_blocked
from syno.space.steps import CandidateStep

SHARP = 0.95  # the share of states in which the distance is the truth
ON = [name for name, row in RULES.items() if row.on]
QUICK = (small_specs.matmul,)
RELIED_ON = ["V1", "V6", "V16", "C8", "C14"]  # by the distance, most
Make = Callable[..., OperatorSpec]


@pytest.mark.parametrize("make", quick_cases(small_specs.ALL, QUICK.__contains__), ids=lambda make: make.__name__)
def test_the_distance_is_never_above_the_truth_and_in_nearly_every_state_equal(make: Make) -> None:
    truth, space, equal = Truth.of(make()), Space(make()), 0
    for state, steps in truth.steps.items():
        told = space.distance_of(state) if space.is_feasible(state) else UNREACHABLE
        if steps < UNREACHABLE:
            assert told <= steps, state
        beyond = space.spec.depth - state.steps + 1
        equal += min(told, beyond) == min(steps, beyond)
    assert equal / len(truth.steps) >= SHARP
    assert {operator.id for _, operator in space.enumerate()} == truth.operators
    assert_no_step_on_a_blocked_axis(space, truth)


@pytest.mark.slow
@pytest.mark.parametrize("rule", quick_cases(ON, RELIED_ON.__contains__))
def test_the_distance_loses_no_operator_with_one_rule_off(rule: str) -> None:
    spec = small_specs.convolution(depth=3, rules_off=[rule])
    assert {operator.id for _, operator in Space(spec).enumerate()} == Truth.of(spec).operators


def test_each_guarantee_holds_only_while_its_rules_are_on() -> None:
    assert {id_ for ids in ENSURED_BY.values() for id_ in ids} <= set(RULES)
    assert all(Guarantees.of(RuleSet()))
    for name, ids in ENSURED_BY.items():
        for id_ in ids:
            assert not getattr(Guarantees.of(RuleSet(off=[id_])), name)


def assert_no_step_on_a_blocked_axis(space: Space, truth: Truth) -> None:
    """None is offered; and there are such axes."""
    blocked = 0
    for state in truth.steps:
        if state.steps > 2:
            continue
        offered = {(step.kind, step.dims[0]) for step in space.candidates(state) if step.kind in FIRST_DIM_ALONE}
        for kind in FIRST_DIM_ALONE:
            for dim in state.data:
                step = CandidateStep(space.spec, space.sizes, space.facts, state, kind, (dim,))
                if is_blocked(space.rules, step):
                    blocked += 1
                    assert (kind, dim) not in offered
    assert blocked


@pytest.mark.slow
def test_the_distance_loses_no_operator_with_all_rules_off() -> None:
    spec = small_specs.convolution(depth=3, rules_off=["all"])
    assert {operator.id for _, operator in Space(spec).enumerate()} == Truth.of(spec).operators


@pytest.mark.slow
@pytest.mark.parametrize("rule", RELIED_ON)
def test_the_distance_loses_no_operator_deeper_with_one_rule_off(rule: str) -> None:
    spec = small_specs.convolution(depth=4, rules_off=[rule])
    assert {operator.id for _, operator in Space(spec).enumerate()} == Truth.of(spec).operators


@pytest.mark.slow
@pytest.mark.parametrize("make", small_specs.ALL, ids=lambda make: make.__name__)
def test_the_distance_loses_no_operator_one_primitive_deeper(make: Make) -> None:
    spec = make(depth=make().depth + 1)
    assert {operator.id for _, operator in Space(spec).enumerate()} == Truth.of(spec).operators


def test_the_worked_example_of_the_docstring() -> None:
    assert doctest.testmod(distance).failed == 0

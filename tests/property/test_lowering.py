"""Every generator computes what the interpreter computes: on random, known and published operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from small_values import random_tensors, small_values
from strategies import pgraphs
from torch.utils._python_dispatch import TorchDispatchMode

from syno.algebra import Valuation
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.published import distinct, read_artifact
from syno.ir.text import parse
from syno.lower.interpreter import interpret
from syno.lower.plan import Plan, candidates
from syno.model import OperatorModule, build

TOLERANCE = 1e-10  # relative, in float64
QUICK = settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=4000)


def module_with(
    graph: PGraph, values: Valuation, weights: list[np.ndarray], mode: str, plan: Plan | None = None
) -> OperatorModule:
    module = build(graph, values, mode=mode, plan=plan, dtype=torch.double)
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    return module


def assert_close(computed: np.ndarray, expected: np.ndarray, what: object) -> None:
    assert computed.shape == expected.shape, what
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    assert np.abs(computed - expected).max(initial=0.0) <= TOLERANCE * scale, what


def check_every_form(graph: PGraph, values: Valuation) -> None:
    """Literal, and fused by every plan, also those that contract weights with each other."""
    x, *weights = random_tensors(graph, values)
    expected = interpret(graph, values, x, *weights)
    plans = candidates(graph, values, inference=True)
    for mode, plan in [("literal", None), *(("fused", plan) for plan in plans)]:
        module = module_with(graph, values, weights, mode, plan)
        with torch.no_grad():
            computed = module(torch.from_numpy(x)).numpy()
        assert_close(computed, expected, f"{mode}\n{graph}\n{module.source}")


def check_compositions(graph: PGraph, values: Valuation) -> None:
    """A composed weight, computed by its recipe, gives the operator with one weight less the same output."""
    x, *weights = random_tensors(graph, values)
    expected = interpret(graph, values, x, *weights)
    for plan in candidates(graph, values, inference=True):
        if (composition := plan.composition) is not None:
            used = {name: values[name] for name in composition.recipe.variables}
            composed = interpret(composition.recipe, used, weights[composition.above - 1], weights[composition.below - 1])
            kept = [weights[number - 1] for number in composition.kept(len(weights))]
            used = {name: values[name] for name in composition.graph.variables}
            assert_close(interpret(composition.graph, used, x, *kept, composed), expected, composition.graph)
            assert parse(str(composition.graph)) == composition.graph


def check_gradients(graph: PGraph, values: Valuation) -> None:
    """An operator is linear in the input and in each weight, so its exact gradient is known from the interpreter.

    The derivative of <y, c> in direction d of one tensor is <c, y with that tensor replaced by d>.
    """
    tensors = random_tensors(graph, values)
    directions = random_tensors(graph, values, seed=1)
    module = module_with(graph, values, tensors[1:], "fused")
    x = torch.from_numpy(tensors[0]).requires_grad_()
    y = module(x)
    cotangent = np.random.default_rng(2).normal(size=y.shape)
    y.backward(torch.from_numpy(cotangent))
    for number, (tensor, direction) in enumerate(zip([x, *module.parameters()], directions, strict=True)):
        replaced = [direction if other == number else old for other, old in enumerate(tensors)]
        expected = np.sum(cotangent * interpret(graph, values, *replaced))
        computed = np.sum(tensor.grad.numpy() * direction) if tensor.grad is not None else 0.0
        assert abs(computed - expected) <= TOLERANCE * max(1.0, abs(expected)) * 100, f"tensor {number} of\n{graph}"


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_in_every_form(graph: PGraph) -> None:
    check_every_form(graph, graph.variables.valuation())


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_with_composed_weights(graph: PGraph) -> None:
    check_compositions(graph, graph.variables.valuation())


@settings(QUICK, max_examples=300)
@given(pgraphs(max_weights=3))
def test_gradients_of_random_operators(graph: PGraph) -> None:
    check_gradients(graph, graph.variables.valuation())


@pytest.mark.slow
@THOROUGH
@given(pgraphs(max_weights=3))
def test_thousands_of_random_operators_in_every_form(graph: PGraph) -> None:
    check_every_form(graph, graph.variables.valuation())
    check_compositions(graph, graph.variables.valuation())


@pytest.mark.slow
@settings(THOROUGH, max_examples=1500)
@given(pgraphs(max_weights=3))
def test_gradients_of_thousands_of_random_operators(graph: PGraph) -> None:
    check_gradients(graph, graph.variables.valuation())


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("even_window", [False, True])
def test_library_operators_in_every_form(name: str, even_window: bool) -> None:
    graph = OPERATORS[name]()
    windows = {variable: 4 for variable in ("k", "k_1") if even_window and variable in graph.variables}
    values = small_values(graph, **windows)
    check_every_form(graph, values)
    check_compositions(graph, values)
    check_gradients(graph, values)


def test_published_operators_in_every_form(artifact: Path) -> None:
    for operator in distinct(read_artifact(artifact)):
        values = small_values(operator.graph)
        check_every_form(operator.graph, values)
        check_compositions(operator.graph, values)
        check_gradients(operator.graph, values)


class LargestTensor(TorchDispatchMode):
    """The largest number of elements that one operation wrote: views of existing memory do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        known = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, torch.Tensor)}
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in known:
                self.elements = max(self.elements, tensor.numel())
        return result


def largest_tensor(module: torch.nn.Module, x: torch.Tensor) -> int:
    with LargestTensor() as seen, torch.no_grad():
        module(x)
    return seen.elements


def largest_needed(plan: Plan, values: Valuation) -> int:
    """The largest of input, weights and stage results, with room for a padded border; a window is at least three times it."""
    tensors = [plan.graph.input, *plan.graph.weights, *(stage.output for stage in plan.stages)]
    return int(1.25 * max(values.numel(dim.size for dim in tensor) for tensor in tensors))


WINDOWED = ["conv2d", "grouped_conv2d", "grouped_conv2d_shared", "dilated_conv2d", "depthwise_conv2d", "separable_conv2d",
            "low_rank_conv2d", "operator_1", "operator_2", "stacked_convolution", "nas_pte_sequence_1", "nas_pte_sequence_2",
            "nas_pte_sequence_3"]  # fmt: skip


@pytest.mark.parametrize("name", WINDOWED)
def test_fused_form_allocates_nothing_of_window_size(name: str) -> None:
    graph = OPERATORS[name]()
    given = {"H": 24, "N": 2}
    values = small_values(graph, **given)
    module = build(graph, values, seed=0)
    plan = min(candidates(graph, values), key=lambda plan: (plan.flops(), -len(plan.stages)))
    x = torch.randn([values.integer(dim.size) for dim in graph.input])
    assert largest_tensor(module, x) <= largest_needed(plan, values)


def test_literal_form_does_allocate_windows() -> None:
    """That the check above can fail."""
    graph = OPERATORS["conv2d"]()
    values = small_values(graph, H=24, N=2)
    x = torch.randn([values.integer(dim.size) for dim in graph.input])
    module = build(graph, values, mode="literal")
    assert largest_tensor(module, x) > largest_needed(candidates(graph, values)[0], values)

"""Every generator computes what the interpreter computes: on random, known and published operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from agreement import check_compositions, check_every_form, check_gradients
from hypothesis import HealthCheck, given, settings
from small_values import small_values
from strategies import pgraphs
from torch.utils._python_dispatch import TorchDispatchMode

from syno.algebra import Valuation
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.plan import Plan, candidates
from syno.model import build
from syno.paper.artifact.published_operator import distinct, read_artifact

QUICK = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=4000)


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_in_every_form(graph: PGraph) -> None:
    check_every_form(graph, graph.variables.valuation())


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_with_composed_weights(graph: PGraph) -> None:
    check_compositions(graph, graph.variables.valuation())


@settings(QUICK, max_examples=100)
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
@settings(THOROUGH, max_examples=1000)
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


@pytest.mark.slow  # some of them are in the library
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

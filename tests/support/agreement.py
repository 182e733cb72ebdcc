"""Whether what is generated computes what the interpreter computes."""

from __future__ import annotations

import numpy as np
import torch
from small_values import random_tensors

from syno.algebra import Valuation
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.lower.interpreter import interpret
from syno.lower.plan import Plan, candidates
from syno.model import OperatorModule, build

TOLERANCE = 1e-10  # relative, in float64


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
            kept = [weights[number - 1] for number in composition.uncomposed(len(weights))]
            used = {name: values[name] for name in composition.graph.variables}
            assert_close(interpret(composition.graph, used, x, *kept, composed), expected, composition.graph)
            assert parse(str(composition.graph)) == composition.graph


def check_gradients(graph: PGraph, values: Valuation, layout: torch.memory_format = torch.contiguous_format) -> None:
    """An operator is linear in the input and in each weight, so its exact gradient is known from the interpreter.

    The derivative of <y, c> in direction d of one tensor is <c, y with that tensor replaced by d>.
    """
    tensors = random_tensors(graph, values)
    directions = random_tensors(graph, values, seed=1)
    module = module_with(graph, values, tensors[1:], "fused")
    x = torch.from_numpy(tensors[0]).contiguous(memory_format=layout).requires_grad_()
    y = module(x)
    cotangent = np.random.default_rng(2).normal(size=y.shape)
    y.backward(torch.from_numpy(cotangent))
    for number, (tensor, direction) in enumerate(zip([x, *module.parameters()], directions, strict=True)):
        replaced = [direction if other == number else old for other, old in enumerate(tensors)]
        expected = np.sum(cotangent * interpret(graph, values, *replaced))
        computed = np.sum(tensor.grad.numpy() * direction) if tensor.grad is not None else 0.0
        assert abs(computed - expected) <= TOLERANCE * max(1.0, abs(expected)) * 100, f"tensor {number} of\n{graph}"

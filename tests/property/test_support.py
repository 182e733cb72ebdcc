"""The support of operators, applied once and twice: exactly the elements of the input that change the output."""

from __future__ import annotations

import doctest
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm, prod
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import pgraphs

from syno.base.errors import ShapeError, SizeError
from syno.ir import support as module
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.primitives import UNFOLD
from syno.ir.read_pattern import read_pattern, weights_used
from syno.ir.support import Steps, relation, support
from syno.lower.interpreter import interpret, shapes
from syno.space.identity.valuations import own_valuations
from syno.space.presets import preset
from syno.space.sample import Sampler
from syno.space.space import Space

SIZES = {"N": 1, "C": 4, "C_in": 4, "C_out": 4, "H": 6, "M": 3, "K": 4, "seq_len": 5, "H_in": 16, "g": 2, "u": 2, "t": 1}
STEPS: dict[tuple[tuple[str, int], ...], Steps] = {}  # by the values
DIGIT = 3  # bytes: more than summands can fill


def dependence(graph: PGraph, values: Mapping[str, int], tensor: int = 0) -> Array:
    """Which output elements (rows) depend on which elements of a tensor, the input or a weight: one run of the interpreter.

    The elements are powers of a large number, and all other tensors are 1, so that the digits of an output are the numbers of
    summands with each element.
    """
    read, weights, _ = shapes(graph, graph.valuation(values))
    tensors = [np.ones(shape, dtype=object) for shape in (read, *weights)]
    count = tensors[tensor].size
    tensors[tensor] = np.array([1 << 8 * DIGIT * place for place in range(count)], dtype=object).reshape(tensors[tensor].shape)
    output = interpret(graph, values, *tensors)
    numbers = b"".join(int(one).to_bytes(DIGIT * count, "little") for one in output.flat)
    return np.frombuffer(numbers, np.uint8).reshape(output.size, count, DIGIT).any(axis=2)


def check_steps(graph: PGraph, values: Mapping[str, int], at: Sequence[int], applied: int = 1) -> None:
    """Compare the relation with that from the steps of other operators."""
    row = graph.valuation(values)
    steps = STEPS.setdefault(tuple(row.items()), {})
    alone, shared = (relation(graph, row, dict(enumerate(at)), applied=applied, steps=known) for known in (None, steps))
    assert alone.is_empty == shared.is_empty
    tables = ([{dim: column.tolist() for dim, column in table.items()} for table in one.tables] for one in (alone, shared))
    assert next(tables) == next(tables)


def check(graph: PGraph, values: Mapping[str, int]) -> None:
    read, weights, written = shapes(graph, graph.valuation(values))
    once = dependence(graph, values)
    for place in (0, prod(written) - 1, *(Random(seed).randrange(prod(written)) for seed in range(3))):
        at = [int(one) for one in np.unravel_index(place, written)]
        assert np.array_equal(support(graph, values, at).reshape(-1), once[place])
        check_steps(graph, values, at)
        if read == written:
            twice = once[once[place]].any(axis=0)
            assert np.array_equal(support(graph, values, at, applied=2).reshape(-1), twice)
            check_steps(graph, values, at, applied=2)
    used = [
        Fraction(int(dependence(graph, values, number).any(axis=0).sum()), prod(shape))
        for number, shape in enumerate(weights, 1)
    ]
    assert list(weights_used(graph, values)) == used
    check_pattern(graph, values, once.reshape((-1, *read)), 1)
    if read == written:
        check_pattern(graph, values, (once.astype(int) @ once > 0).reshape((-1, *read)), 2)


def check_pattern(graph: PGraph, values: Mapping[str, int], found: Array, applied: int) -> None:
    """Compare with `found`: the elements of the input on which each output element depends."""
    pattern = read_pattern(graph, values, applied)
    _, _, written = shapes(graph, graph.valuation(values))
    assert pattern.used == Fraction(int(found.any(axis=0).sum()), found[0].size)
    has_no_border = all(operation.primitive is not UNFOLD for operation in graph.operations)
    for one in pattern.axes:
        along = found.any(axis=tuple(axis + 1 for axis in range(len(pattern.axes)) if axis != one.axis))
        counts = along.sum(axis=1)
        assert one.least_anywhere == counts.min()
        assert (one.least, one.most) == (counts.min(), counts.max()) if has_no_border else counts.min() <= one.least <= one.most
        assert one.most <= counts.max()
        if one.follows is not None and has_no_border:
            own = np.indices(written)[one.follows].reshape(-1, 1)
            own = one.length - 1 - own if one.is_mirrored else own
            offsets = [along[np.arange(len(along)), (own[:, 0] + offset) % one.length] for offset in one.offsets]
            assert all(offset.any() for offset in offsets) and np.array_equal(sum(map(np.asarray, offsets), 0 * counts), counts)
            assert one.common == tuple(one.offsets[at] for at, offset in enumerate(offsets) if offset.all())


@pytest.mark.parametrize("name", OPERATORS)
def test_the_support_of_known_operators(name: str) -> None:
    graph = OPERATORS[name]()
    check(graph, {variable: value for variable, value in SIZES.items() if variable in graph.variables})


@given(pgraphs())
@settings(deadline=None, derandomize=True, max_examples=6)
def test_the_support_of_random_operators(graph: PGraph) -> None:
    check(graph, {})


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "operators"), [("resnet18", 6), ("gpt2", 2)])
def test_the_support_in_the_papers_spaces_by_gradients_of_modules(chosen: str, operators: int) -> None:
    torch = pytest.importorskip("torch")
    from syno.model.module import build

    sampler = Sampler(Space(preset(chosen)), Random("support"))
    while len(sampler.operators) < operators:
        sampler.draw()
    for graph in sampler.operators:
        tiny, *_ = own_valuations(graph)
        for row in (tiny, with_equal_channels(tiny)):
            read, _, written = shapes(graph, graph.valuation(row))
            module = build(graph, row, mode="literal", dtype=torch.float64)
            for parameter in module.parameters():
                torch.nn.init.uniform_(parameter, 0.5, 1.0)
            for place in (0, prod(written) - 1, prod(written) // 3):
                at = tuple(int(one) for one in np.unravel_index(place, written))
                for applied in (1, 2) if read == written else (1,):
                    elements = torch.ones(read, dtype=torch.float64, requires_grad=True)
                    found = elements
                    for _ in range(applied):
                        found = module(found)
                    (gradient,) = torch.autograd.grad(found[at], elements)
                    assert np.array_equal(support(graph, row, at, applied), gradient.numpy() > 0)


def with_equal_channels(row: Mapping[str, int]) -> Mapping[str, int]:
    if "C_out" not in row or "C_in" not in row:
        return row
    equal = lcm(row["C_in"], row["C_out"])
    return {**row, "C_in": equal, "C_out": equal}


def test_the_middle_is_the_default_and_large_sizes_fit() -> None:
    found = support(OPERATORS["operator_1"](), {"N": 1, "C_in": 512, "C_out": 512, "H": 56, "g": 32}, applied=2)
    assert found[0, 511].nonzero()[0].tolist() == [row for row in range(26, 31) for _ in range(5)]


def test_errors() -> None:
    conv2d, values = OPERATORS["conv2d"](), {"N": 1, "C_in": 4, "C_out": 8, "H": 6}
    with pytest.raises(ShapeError, match=r"\[0, 0, 6, 0\] is no position of the output .*, whose shape is \[1, 8, 6, 6\]"):
        support(conv2d, values, at=(0, 0, 6, 0))
    with pytest.raises(SizeError, match=r"its input has shape \[1, 4, 6, 6\], its output \[1, 8, 6, 6\]; give sizes"):
        support(conv2d, values, applied=2)


def test_the_examples_of_the_module_run() -> None:
    assert doctest.testmod(module).failed == 0

"""Every generator computes what the interpreter computes: on random, known and published operators."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from agreement import assert_close, check_compositions, check_every_form, check_gradients, module_with
from hypothesis import HealthCheck, given, settings
from small_values import random_tensors, small_values
from strategies import pgraphs
from torch.utils._python_dispatch import TorchDispatchMode

from syno.algebra import Valuation, Valuations
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.interpreter import interpret
from syno.lower.plan import Plan, candidates
from syno.lower.pytorch import statements
from syno.lower.pytorch.statements import MODES
from syno.lower.pytorch.tensor_code import Decisions, TensorCode, Writer
from syno.model import build
from syno.paper.artifact.published_operator import distinct, read_artifact

QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=500)


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_in_every_form(graph: PGraph) -> None:
    check_every_form(graph, graph.variables.valuation())


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_with_composed_weights(graph: PGraph) -> None:
    check_compositions(graph, graph.variables.valuation())


@settings(QUICK, max_examples=30)
@given(pgraphs(max_weights=3))
def test_gradients_of_random_operators(graph: PGraph) -> None:
    check_gradients(graph, graph.variables.valuation())


@pytest.mark.slow
@THOROUGH
@given(pgraphs(max_weights=3))
def test_many_random_operators_in_every_form(graph: PGraph) -> None:
    check_every_form(graph, graph.variables.valuation())
    check_compositions(graph, graph.variables.valuation())


@pytest.mark.slow
@settings(QUICK, max_examples=200)
@given(pgraphs(max_weights=3))
def test_gradients_of_many_random_operators(graph: PGraph) -> None:
    check_gradients(graph, graph.variables.valuation())


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("even_window", [False, pytest.param(True, marks=pytest.mark.slow)])
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


# ---- sizes that a module reads from its input, and backends -------------------------------------------------------------


def check_other_sizes(graph: PGraph, values: Valuation) -> None:
    """A module that is made for these sizes computes the operator at twice the lengths that it reads from its input, too."""
    other = graph.valuation({name: length * (1 + (name in graph.runtime_variables)) for name, length in values.items()})
    x, *weights = random_tensors(graph, other)
    expected = interpret(graph, other, x, *weights)
    for mode in MODES:
        module = module_with(graph, values, weights, mode)
        with torch.no_grad():
            assert_close(module(torch.from_numpy(x)).numpy(), expected, f"{mode}\n{graph}\n{module.source}")


def check_few_samples(graph: PGraph, values: Valuation) -> None:
    """Forward and backward run with none and with one sample, where the first axis is that of a batch."""
    batch = graph.input[0] if graph.input else None
    if batch is None or str(batch.size) not in graph.unchanged_variables:
        return
    for mode, few in product(MODES, (0, 1)):
        module = build(graph, values, mode=mode)
        given, made = (
            [few if dim.size is batch.size else values.integer(dim.size) for dim in dims]
            for dims in (graph.input, graph.output)
        )
        y = module(torch.randn(given, requires_grad=True))
        y.sum().backward()
        assert list(y.shape) == made, f"{mode}\n{graph}\n{module.source}"


@QUICK
@given(pgraphs(max_weights=3))
def test_random_operators_at_other_sizes(graph: PGraph) -> None:
    check_other_sizes(graph, graph.variables.valuation())
    check_few_samples(graph, graph.variables.valuation())


@pytest.mark.parametrize("name", OPERATORS)
def test_library_operators_at_other_sizes(name: str) -> None:
    graph = OPERATORS[name]()
    check_other_sizes(graph, small_values(graph))
    check_few_samples(graph, small_values(graph))


def usual_form(write: Writer, valuations: Valuations) -> TensorCode:
    """Return the form that is written if the sizes do not speak against it; at the sizes of tests, they often do."""
    return write(Decisions())


def convolutions(first: str, second: str) -> PGraph:
    """Return two convolutions in a row, each with a kernel along the axes that are named: "H", "W" or both."""
    build = Builder("N, C_in, C_out, H, W; k=3, r", name="two")
    n, channel, *positions = build.output("N, C_out, H, W")
    for axes, inner in ((second, "r"), (first, "C_in")):
        channel, *taps = build.contract(outer=[channel], inner=build.reduce(", ".join([inner, *("k" for _ in axes)])))
        for axis, tap in zip(axes, taps, strict=True):
            positions["HW".index(axis)] = build.unfold(positions["HW".index(axis)], tap)
    return build.finish([n, channel, *positions])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), [(first, second) for first, second in product(("H", "W", "HW", ""), repeat=2) if first + second]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_kernels_of_one_channel_or_row_without_onednn(
    first: str, second: str, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own convolution in two dimensions refuses kernels whose memory format it cannot tell."""
    monkeypatch.setattr(statements, "cheapest", usual_form)
    graph = convolutions(first, second)
    for channels in product((1, 4), repeat=3):
        values = graph.valuation({"N": 2, "H": 5, "W": 4, **dict(zip(("C_in", "C_out", "r"), channels, strict=True))})
        with torch.backends.mkldnn.flags(enabled=False):
            check_gradients(graph, values, layout)


@pytest.mark.slow
@settings(QUICK, max_examples=100)
@given(pgraphs(max_weights=3))
def test_gradients_of_the_usual_form_without_onednn(graph: PGraph) -> None:
    with pytest.MonkeyPatch.context() as patch, torch.backends.mkldnn.flags(enabled=False):
        patch.setattr(statements, "cheapest", usual_form)
        check_gradients(graph, graph.variables.valuation())


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_library_operators_without_onednn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "cheapest", usual_form)
    graph = OPERATORS[name]()
    with torch.backends.mkldnn.flags(enabled=False):
        check_gradients(graph, small_values(graph))


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

"""An operator as a module: checks, initialization, and everything torch does with modules."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import golden_files
import pytest
import torch
from small_values import small_values
from torch._dynamo.testing import CompileCounter

from syno.algebra import Valuation
from syno.base.errors import ShapeError, SizeError, UnknownNameError, ValuationError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.choose import measure, plan
from syno.lower.plan import candidates
from syno.lower.pytorch.source import class_name, constructor_sizes, to_source
from syno.lower.stages import fan_in
from syno.model import OperatorModule, build

SIZES = {"C_in": 64, "C_out": 64, "H": 8}
MODES = ["literal", "fused"]


def operator_1(**more: object) -> OperatorModule:
    return build(OPERATORS["operator_1"](), SIZES, seed=1, **more)  # type: ignore[arg-type]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 64, 8, 8, generator=torch.Generator().manual_seed(0))


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-4) -> bool:
    return torch.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance)


# ---- the source ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["conv2d", "operator_1", "pixel_shuffle", "shift_rows_conv1x1", "gpt2_projection"])
def test_the_source_is_that_of_the_golden_file(name: str, mode: str) -> None:
    golden_files.check(f"{name}.{mode}.py", to_source(OPERATORS[name](), mode=mode))


def test_the_source_with_composed_weights_is_that_of_the_golden_file() -> None:
    graph = OPERATORS["operator_1"]()
    composed = [one for one in candidates(graph, {**SIZES, "N": 1}, inference=True) if one.composition is not None]
    golden_files.check("operator_1.composed.py", to_source(graph, plan=composed[0]))


def test_a_variable_may_not_have_a_name_the_code_needs() -> None:
    builder = Builder("x, N")
    (i, n) = builder.output("x, N")
    graph = builder.finish([builder.shift(i, 1), n])
    assert "# Variables that have other names in this code: x is x_size\n" in to_source(graph)
    x = torch.randn(4, 3)
    assert torch.equal(build(graph, {"x": 4})(x), x.roll(-1, 0))


def test_an_unknown_mode_names_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match='"fast"; there are: fused, literal'):
        to_source(OPERATORS["conv2d"](), mode="fast")


# ---- sizes --------------------------------------------------------------------------------------------------------------


def test_any_batch_size_is_taken(x: torch.Tensor) -> None:
    module = operator_1()
    assert torch.equal(module(x[:1]), module(x)[:1]) or close(module(x[:1]), module(x)[:1])


@pytest.mark.parametrize("shape", [(2, 64, 8, 7), (2, 32, 8, 8), (64, 8, 8), (2, 64, 8, 8, 1)])
def test_a_wrong_input_is_refused_with_both_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"input has shape .*\[N, 64, H, H\]") as error:
        operator_1()(torch.randn(shape))
    assert str(list(shape)) in str(error.value)


def fitting(operator: PGraph) -> Valuation:
    """Return sizes that all library operators have in common, as far as this one has them."""
    sizes = {"N": 2, "C": 64, "C_in": 64, "C_out": 64, "H": 8, "H_in": 48, "H_out": 48, "seq_len": 8, "M": 16, "K": 16}
    return operator.valuation({name: sizes[name] for name in operator.variables if name in sizes})


@pytest.mark.parametrize("is_exported", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_batch_alone_may_be_empty(name: str, mode: str, is_exported: bool) -> None:
    """Other axes of length 0 are refused in one line, by the source without Syno, too."""
    operator = OPERATORS[name]()
    values = fitting(operator)
    module: torch.nn.Module = build(operator, values, mode=mode)
    if is_exported:
        scope: dict[str, Any] = {}
        exec(module.source, scope)
        module = scope[class_name(operator)](**constructor_sizes(operator, values))
    for variable in operator.runtime_variables:
        empty = [
            [0 if variable in {v.name for v in d.size.variables} else values.integer(d.size) for d in dims]
            for dims in (operator.input, operator.output)
        ]
        if operator.runtime_axes[variable][0] == 0:
            assert list(module(torch.zeros(empty[0])).shape) == empty[1]
        else:
            with pytest.raises(ValueError, match=rf"^the input has shape .* it must be \[.*\] with .*{variable} > 0"):
                module(torch.zeros(empty[0]))


def test_sizes_that_do_not_divide_are_refused_when_building() -> None:
    with pytest.raises(SizeError, match=r"g\^-1\*C_in is 15/8 for .*C_in=60.*whole number"):
        build(OPERATORS["operator_1"](), {**SIZES, "C_in": 60})


def test_sizes_that_do_not_divide_are_refused_by_the_generated_code() -> None:
    namespace: dict[str, object] = {}
    exec(to_source(OPERATORS["operator_1"]()), namespace)
    with pytest.raises(ValueError, match="C_in must be a multiple of g; given: C_in = 60, g = 32"):
        namespace["Operator1"](C_in=60, C_out=64, k_1=3, g=32, s=2)  # type: ignore[operator]


def test_a_missing_size_is_named() -> None:
    with pytest.raises(ValuationError, match="no value for C_out"):
        build(OPERATORS["conv2d"](), {"C_in": 4, "H": 4})


# ---- initialization -----------------------------------------------------------------------------------------------------


def test_a_seed_makes_the_weights_reproducible() -> None:
    assert torch.equal(operator_1().w1, operator_1().w1)
    assert not torch.equal(operator_1().w1, build(OPERATORS["operator_1"](), SIZES, seed=2).w1)


@pytest.mark.parametrize(
    "name", ["conv1x1", "operator_1", "grouped_conv2d_shared", "low_rank_conv1x1", "gpt2_projection", "matmul"]
)
def test_fan_in_initialization_keeps_the_variance(name: str) -> None:
    graph = OPERATORS[name]()
    wanted = {"C_in": 64, "C_out": 64, "H": 12, "N": 4, "seq_len": 32, "K": 64, "M": 64, "H_in": 192}
    values = graph.variables.valuation({variable: value for variable, value in wanted.items() if variable in graph.variables})
    variances = []
    for seed in range(6):
        module = build(graph, values, seed=seed)
        x = torch.randn([values.integer(dim.size) for dim in graph.input], generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            variances.append(float(module(x).var()))
    assert 0.6 < sum(variances) / len(variances) < 1.4  # borders, where windows read zeros, have fewer summands


def test_fan_in_multiplies_to_the_number_of_summands() -> None:
    graph = OPERATORS["operator_1"]()
    values = small_values(graph)
    summands = values.numel(dim.size for dim in graph.reduces)
    assert values.integer(fan_in(graph)[1]) * values.integer(fan_in(graph)[2]) == summands


def test_the_papers_initialization_is_a_normal_of_a_tenth() -> None:
    module = operator_1(init="paper")
    assert abs(module.w1.std().item() - 0.1) < 0.01


def test_an_unknown_initialization_names_those_there_are() -> None:
    with pytest.raises(ValueError, match='"fan_in" or "paper"; given: \'zeros\''):
        operator_1(init="zeros")


# ---- what torch does with modules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["operator_1", "depthwise_conv2d", "dilated_conv2d", "gpt2_projection", "shift_conv1x1"])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_agree_with_finite_differences(name: str, mode: str) -> None:
    graph = OPERATORS[name]()
    small = {"N": 1, "seq_len": 2, "k_1": 2, "t": 2} if name == "gpt2_projection" else {"N": 1, "H": 4}
    values = small_values(graph, **small)
    module = build(graph, values, mode=mode, dtype=torch.double, seed=0)
    x = torch.randn([values.integer(dim.size) for dim in graph.input], dtype=torch.double, requires_grad=True)
    names = [name for name, _ in module.named_parameters()]

    def function(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, (x, *module.parameters()), fast_mode=True)


@pytest.mark.parametrize("mode", MODES)
def test_export_with_a_free_batch_size(mode: str, x: torch.Tensor) -> None:
    module = operator_1(mode=mode)
    exported = torch.export.export(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    more = torch.cat([x, x, x])
    assert close(exported.module()(more), module(more))


COMPILED = [("operator_1", "literal"), *((name, "fused") for name in ("operator_1", "operator_2", "depthwise_conv2d",
            "gpt2_projection", "shift_conv1x1", "upsample_nearest"))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), COMPILED)
def test_compile_with_one_graph(name: str, mode: str) -> None:
    graph = OPERATORS[name]()
    values = small_values(graph)
    module = build(graph, values, seed=0, mode=mode)
    x = torch.randn([values.integer(dim.size) for dim in graph.input])
    assert close(torch.compile(module, fullgraph=True, dynamic=False)(x), module(x))


def graphs_for_batches(name: str) -> int:
    """Return how many graphs Dynamo makes of an operator for batches below and above those with other kernels on CPUs."""
    operator = OPERATORS[name]()
    values = fitting(operator)
    compiles = CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(build(operator, values), dynamic=True, backend=compiles)
    for batch in (4, 6, 9, 16, 18, 21):
        compiled(torch.randn(batch, *(values.integer(dim.size) for dim in operator.input[1:])))
    return int(compiles.frame_count)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["operator_1", "grouped_conv2d_shared", "shift_conv1x1", "pixel_shuffle", "gpt2_projection"])
def test_other_batches_compile_no_more_often_than_for_a_convolution(name: str) -> None:
    """`grouped_conv2d_shared` computes two groups as parts of the batch, so other kernels begin at half the batch."""
    assert graphs_for_batches(name) <= graphs_for_batches("conv2d") <= 2


def test_dynamo_traces_forward_without_a_break(x: torch.Tensor) -> None:
    module = operator_1()
    assert close(torch.compile(module, fullgraph=True, backend="eager")(x), module(x))


def test_automatic_mixed_precision(x: torch.Tensor) -> None:
    module = operator_1()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = module(x)
    assert low.dtype == torch.bfloat16
    assert close(low, module(x), tolerance=0.05)


def test_channels_last_input_gives_the_same_output(x: torch.Tensor) -> None:
    module = operator_1()
    assert close(module(x.to(memory_format=torch.channels_last)), module(x))


def test_pickle_and_deepcopy_keep_operator_and_weights(x: torch.Tensor) -> None:
    module = operator_1()
    for other in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert torch.equal(other(x), module(x))
        assert other.graph == module.graph
        assert other.source == module.source


def test_repr_is_one_line_that_identifies_the_operator() -> None:
    shown = repr(operator_1())
    assert shown.startswith("Operator1(operator_1, ") and "C_in=64" in shown
    assert shown.endswith(f"mode=fused, id={OPERATORS['operator_1']().id})")
    assert len(shown.splitlines()) == 1


def test_weights_pass_from_one_mode_to_the_other(x: torch.Tensor) -> None:
    module = operator_1()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    literal = operator_1(mode="literal")
    literal.reset_parameters(seed=9)
    literal.load_state_dict(torch.load(file, weights_only=True))
    assert close(literal(x), module(x))


def test_a_state_dict_holds_tensors_only() -> None:
    assert {name: type(value) for name, value in operator_1().state_dict().items()} == {"w1": torch.Tensor, "w2": torch.Tensor}


def test_weights_of_another_operator_are_refused() -> None:
    net = torch.nn.Sequential(operator_1())
    other = torch.nn.Sequential(build(OPERATORS["conv2d"](), SIZES))
    with pytest.raises(ShapeError, match="weights for 0 .*<pGraph operator_1"):
        other.load_state_dict(net.state_dict())


# ---- plans for inference ------------------------------------------------------------------------------------------------


def test_frozen_weights_give_the_same_output(x: torch.Tensor) -> None:
    graph = OPERATORS["operator_1"]()
    composed = next(one for one in candidates(graph, {**SIZES, "N": 2}, inference=True) if one.composition is not None)
    module = build(graph, SIZES, plan=composed, seed=1)
    before = module(x)
    assert close(module.freeze()(x), before)
    assert close(before, operator_1()(x))


def test_measuring_picks_the_fastest_of_all_candidates() -> None:
    graph = OPERATORS["operator_1"]()
    plans = candidates(graph, {**SIZES, "N": 2}, inference=True)
    rows = measure(plans, seconds=0.01)
    assert [row.plan for row in rows] != [] and len(rows) == len(plans) > 1
    assert [row.latency_ms for row in rows] == sorted(row.latency_ms for row in rows)
    chosen = plan(graph, {**SIZES, "N": 2}, inference=True, choose="measure", seconds=0.01)
    assert chosen.stages in [one.stages for one in plans]


def test_an_unknown_way_to_choose_names_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match='"speed"; there are: flops, measure'):
        plan(OPERATORS["conv2d"](), {**SIZES, "N": 1}, choose="speed")


def test_a_pure_view_has_no_weights_and_runs() -> None:
    graph: PGraph = OPERATORS["pixel_shuffle"]()
    x = torch.arange(2 * 12 * 3 * 3.0).reshape(2, 12, 3, 3)
    module = build(graph, {"C": 3, "H": 3, "s": 2})
    assert list(module.parameters()) == []
    assert torch.equal(module(x), torch.nn.functional.pixel_shuffle(x, 2))

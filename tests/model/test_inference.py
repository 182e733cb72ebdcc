"""Weights follow the layout of their reader, and prepared modules keep what is computed from weights alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from syno.algebra import Valuation, Valuations
from syno.ir.library import OPERATORS
from syno.lower.plan import Plan, plan_for
from syno.lower.pytorch.costs import estimated_microseconds
from syno.lower.pytorch.fused import FusedLowering
from syno.lower.pytorch.tensor_code import Decisions, cheapest
from syno.measure.compilers import compiler_named
from syno.model import OperatorModule, build, prepare_for_inference
from syno.model.substitution import substitute

SIZES = {"C_in": 64, "C_out": 128, "H": 4}


def operator_1() -> OperatorModule:
    return build(OPERATORS["operator_1"](), SIZES, seed=1)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 64, 4, 4, generator=torch.Generator().manual_seed(0))


# ---- layout in memory ---------------------------------------------------------------------------------------------------


def test_the_reader_of_a_large_weight_needs_no_copy() -> None:
    module = operator_1()
    kernel = module.prepared_weights()[0]
    assert kernel.data_ptr() == module.w1.data_ptr()
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert module.w1.shape == (32, 3, 3, 128, 2)


def test_the_same_seed_draws_the_same_weights_in_every_layout() -> None:
    literal = build(OPERATORS["operator_1"](), SIZES, seed=1, mode="literal")
    assert literal.w1.is_contiguous() and not operator_1().w1.is_contiguous()
    assert torch.equal(operator_1().w1, literal.w1)


def test_copies_gradients_and_momentum_keep_the_layout(x: torch.Tensor) -> None:
    module = operator_1()
    strides = module.w1.stride()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(x).sum().backward()
    optimizer.step()
    moved = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), copy.deepcopy(module).double()]
    tensors = [one.w1 for one in moved] + [module.w1, module.w1.grad, optimizer.state[module.w1]["momentum_buffer"]]
    assert [tensor.stride() for tensor in tensors] == [strides] * len(tensors)


def test_weights_of_another_layout_load(x: torch.Tensor) -> None:
    module, other = operator_1(), operator_1()
    strides = other.w1.stride()
    other.load_state_dict({name: 2 * weight.contiguous() for name, weight in module.state_dict().items()})
    assert other.w1.stride() == strides
    assert torch.allclose(other(x), 4 * module(x), rtol=1e-4, atol=1e-5)


def test_convolutions_that_stay_read_channels_last_data_without_a_copy() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.Conv2d(64, 8, 3))
    changed = substitute(model, OPERATORS["operator_1"](), torch.zeros(1, 3, 6, 6), where=["1"])
    assert changed[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(changed[2].weight, model[2].weight)


def test_groups_are_computed_on_channels_first_data_where_it_is_on_a_gpu(x: torch.Tensor) -> None:
    class OnGpu(torch.Tensor):  # a tensor of the CPU that says that it is on a GPU
        is_cuda = True

    module, seen = operator_1(), list[bool]()
    conv2d = torch.nn.functional.conv2d

    def spied(x: torch.Tensor, weight: torch.Tensor, **options: Any) -> torch.Tensor:
        seen.extend((x.is_contiguous(), weight.is_contiguous()))
        return conv2d(x, weight, **options)

    last = x.contiguous(memory_format=torch.channels_last)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "conv2d", spied)
        found = module(last.as_subclass(OnGpu))
        assert seen == [True] * 4
        seen.clear()
        assert torch.allclose(found, module(last), rtol=1e-4, atol=1e-5)
    assert not any(seen)


# ---- kept for inference -------------------------------------------------------------------------------------------------


def kept(module: OperatorModule, x: torch.Tensor) -> torch.Tensor:
    """The output by what is kept, which a call before has computed."""
    with torch.no_grad():
        module(x)
        return module(x)


def fresh(module: OperatorModule, x: torch.Tensor) -> torch.Tensor:
    """The output by the weights as they are."""
    return module(x).detach()


def by_the_compiler_eager(module: OperatorModule) -> OperatorModule:
    compiled: OperatorModule = compiler_named("eager")(SimpleNamespace(module=module))  # type: ignore[arg-type]
    return compiled


@pytest.mark.parametrize("prepared", [prepare_for_inference, by_the_compiler_eager])
def test_what_depends_on_weights_alone_is_computed_once(
    prepared: Callable[[OperatorModule], OperatorModule], x: torch.Tensor
) -> None:
    module = prepared(operator_1())
    with torch.no_grad():
        first, again = module.prepared_weights(), module.prepared_weights()
    assert first is again
    assert torch.equal(kept(module, x), fresh(module, x))


def by_optimizer(module: OperatorModule) -> None:
    module(torch.ones(1, 64, 4, 4)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=1.0).step()


def by_fused_optimizer(module: OperatorModule) -> None:
    module(torch.ones(1, 64, 4, 4)).sum().backward()
    torch.optim.Adam(module.parameters(), lr=1.0, fused=True).step()


def by_loading(module: OperatorModule) -> None:
    module.load_state_dict(build(OPERATORS["operator_1"](), SIZES, seed=2).state_dict())


def by_assigning(module: OperatorModule) -> None:
    module.load_state_dict(build(OPERATORS["operator_1"](), SIZES, seed=2).state_dict(), assign=True)


def in_inference_mode(module: OperatorModule) -> None:
    with torch.inference_mode():
        module.w2.mul_(2)


def by_new_data(module: OperatorModule) -> None:
    module.w2.data = 3 * module.w2.data


def by_rounding(module: OperatorModule) -> None:
    module.bfloat16().float()


def by_training(module: OperatorModule) -> None:
    module.train()
    module.w2.data.mul_(2)


CHANGES = [
    by_optimizer, by_fused_optimizer, by_loading, by_assigning, in_inference_mode, by_new_data, by_rounding, by_training,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_count_at_the_next_call(change: object, x: torch.Tensor) -> None:
    module = prepare_for_inference(operator_1())
    before = kept(module, x)
    change(module)  # type: ignore[operator]
    after = kept(module, x)
    assert not torch.equal(after, before)
    assert torch.equal(after, fresh(module, x))


def test_a_copy_has_nothing_of_the_original(x: torch.Tensor) -> None:
    module = prepare_for_inference(operator_1())
    kept(module, x)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.w2.mul_(2)
    assert torch.equal(kept(other, x), fresh(other, x))


def test_other_number_formats_are_not_kept(x: torch.Tensor) -> None:
    module = prepare_for_inference(operator_1())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept(module, x)
    assert torch.equal(kept(module, x), fresh(module, x))


def test_gradients_flow_in_a_prepared_model(x: torch.Tensor) -> None:
    module = prepare_for_inference(operator_1())
    kept(module, x)
    module(x).sum().backward()
    assert module.w2.grad is not None and bool(module.w2.grad.abs().sum() > 0)


# ---- the choice of a form -----------------------------------------------------------------------------------------------


def chosen(plan: Plan) -> tuple[float, dict[str, float]]:
    """The estimated time of the chosen form, and of each form that differs from the usual one by one decision."""
    usual = Decisions()

    def write(decisions: Decisions) -> object:
        return FusedLowering(plan, ["self.w1", "self.w2"], decisions=decisions).run()

    def time(code: object) -> float:
        return estimated_microseconds(code.work, plan.valuations)  # type: ignore[attr-defined]

    best = time(cheapest(write, plan.valuations))  # type: ignore[arg-type]
    write(usual)
    return best, {name: time(write(Decisions(frozenset({name})))) for name in usual.met}


def test_the_form_with_the_least_estimated_time_is_chosen() -> None:
    graph = OPERATORS["operator_1"]()
    wide = {"N": 1, "C_in": 4096, "C_out": 4096, "H": 7, "g": 2, "s": 2048}  # zeros cost more than moved slices
    best, others = chosen(plan_for(graph, Valuations([Valuation(graph.valuation(wide))]), None))
    assert best <= others["spread"]
    assert "shear" in build(graph, wide, device="meta").source
    assert "shear" not in operator_1().source

"""Runs plans on this machine's CPU, as TVM compiles them. Import it after `pytest.importorskip("tvm")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.s_tir import Schedule
from tvm.tirx import IterVar

from syno.lower.interpreter import interpret, shapes
from syno.lower.plan import Plan
from syno.lower.tvm import prim_functions, te_stages

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1, "opt-level": 0})
TOLERANCE = 1e-4  # as a share of the largest value, in float32

Array = NDArray[Any]


def compiled(plan: Plan, values: Mapping[str, int], rescheduled: bool = False) -> Callable[..., Array]:
    """The plan's stages, compiled for `values`; a function of input and weights that gives the output.

    Loops are as they are written, or fused and split, as tuning does: indices are then quotients and remainders of other
    loop variables.
    """
    functions = {str(function.attrs["global_symbol"]): function for function in prim_functions(plan, values)}
    if rescheduled:
        functions = {name: fused_and_split(function) for name, function in functions.items()}
    executable = tvm.compile(tvm.IRModule(functions), target=TARGET)
    stages, valuation = te_stages(plan), plan.staged.valuation(values)

    def call(*arrays: Array) -> Array:
        names = ["x", *(f"w{number}" for number in range(1, len(arrays)))]
        held = {name: on_device(array) for name, array in zip(names, arrays, strict=True)}
        for stage in stages:
            shape = tuple(valuation.integer(dim.size) for dim in stage.axes)
            held[stage.result] = on_device(np.full(shape, np.nan))  # what is not written shows
            executable[stage.name](*(held[name] for name in stage.operands), held[stage.result])
        return held["y"].numpy()

    return call


def fused_and_split(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The kernel with one loop for all axes and one for all sums, each then split with a remainder; padding is written in."""
    schedule = Schedule(tvm.IRModule({"main": function}))
    *padding, block = schedule.get_child_blocks(schedule.get_sblock("root"))
    for copy in padding:
        schedule.compute_inline(copy)
    loops, iterators = schedule.get_loops(block), schedule.get(block).iter_vars
    for kind, length in ((IterVar.DataPar, 3), (IterVar.CommReduce, 2)):
        own = [loop for loop, iterator in zip(loops, iterators, strict=True) if iterator.iter_type == kind]
        if own:
            schedule.split(schedule.fuse(*own), [None, length])
    return schedule.mod["main"]


def on_device(array: Array) -> tvm.runtime.Tensor:
    tensor = tvm.runtime.empty(array.shape, "float32", tvm.cpu())
    return tensor.copyfrom(np.array(array, dtype=np.float32, order="C"))


def random_arrays(plan: Plan, values: Mapping[str, int]) -> list[Array]:
    random = np.random.default_rng(0)
    input_shape, weight_shapes, _ = shapes(plan.staged, plan.staged.valuation(values))
    return [random.standard_normal(shape).astype(np.float32) for shape in (input_shape, *weight_shapes)]


def at_borders(plan: Plan, values: Mapping[str, int]) -> NDArray[np.bool_]:
    """Which outputs have summands beyond a border: with ones for all tensors, they count fewer summands than others."""
    input_shape, weight_shapes, _ = shapes(plan.staged, plan.staged.valuation(values))
    summands = interpret(plan.staged, values, *(np.ones(shape) for shape in (input_shape, *weight_shapes)))
    valuation = plan.staged.valuation(values)
    return summands < valuation.numel(dim.size for dim in plan.staged.reduces)


def assert_agrees(plan: Plan, values: Mapping[str, int], rescheduled: bool = False) -> None:
    """TVM computes what the interpreter computes, at the borders and away from them."""
    arrays = random_arrays(plan, values)
    expected = interpret(plan.staged, values, *(array.astype(np.float64) for array in arrays))
    assert_close(compiled(plan, values, rescheduled)(*arrays), expected, at_borders(plan, values), plan.staged)


def assert_close(computed: Array, expected: Array, borders: NDArray[np.bool_], what: object) -> None:
    assert computed.shape == expected.shape, what
    error = np.abs(computed - expected) / max(1.0, float(np.abs(expected).max(initial=0)))
    assert np.isfinite(computed).all(), f"not everything is written\n{what}"
    assert error[borders].max(initial=0) <= TOLERANCE, f"wrong at the borders\n{what}"
    assert error[~borders].max(initial=0) <= TOLERANCE, f"wrong away from the borders\n{what}"

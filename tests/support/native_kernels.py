"""Native kernels of operators, called with random tensors and compared with the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_once import made_once
from numpy.typing import NDArray

from syno.algebra import Valuation
from syno.ir.graph import PGraph
from syno.lower.interpreter import interpret, shapes
from syno.lower.native.activations import EXACT
from syno.lower.native.layouts import Format
from syno.lower.native.nests import Nest, every, nest_plan
from syno.lower.native.plane_lanes import plane_lanes
from syno.lower.native.program import NO_EPILOGUE, Epilogue, Lanes, Program, whole_file
from syno.lower.native.sample_lanes import sample_lanes
from syno.lower.native.schedules import schedules
from syno.lower.native.target import Target, own_target
from syno.lower.plan import candidates, fewest_flops
from syno.measure.native import build, choice, kernels, torch_operator
from syno.measure.native.build import library
from syno.measure.native.kernels import aligned, from_lanes

TOLERANCE = 1e-5


def make_quickly(patches: pytest.MonkeyPatch) -> None:
    """Let kernels be made quickly, not optimized, and be chosen."""
    patches.setattr(build, "FLAGS", tuple(flag.replace("-O2", "-O0") for flag in build.FLAGS))
    patches.setattr(kernels, "SCHEDULES_TIMED", 1)
    patches.setattr(kernels, "SECONDS_TIMED", 0.0)
    patches.setattr(choice, "hopeless", lambda *_: "")
    patches.setattr(choice, "fastest_in_turns", lambda other, *native: (2.0, *(1.0 for _ in native)))


def kernel_store(factory: pytest.TempPathFactory) -> Path:
    """Return a store of kernels for all processes of pytest. It has PyTorch's operator, which compiles for seconds."""

    def compile_operator(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patches:
            make_quickly(patches)
            torch_operator.compiled_operator(folder)

    return made_once(factory, "kernels", compile_operator)


def lanes_of(
    graph: PGraph,
    values: Valuation,
    kind: str,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = NO_EPILOGUE,
    target: Target | None = None,
    steps: Sequence[int] = (),
) -> Lanes:
    """Return an operator in a form: "samples", "flat" (all that can be are samples), "plane", or "bands" (of 3 rows).

    `steps`: along each axis of the output, every so many-th position is computed.
    """
    plan = fewest_flops(candidates(graph, values))
    through = [dim for dim in graph.output if dim in graph.input]
    nests = nest_plan(plan, graph.valuation(values), () if kind == "flat" else through[1:])
    nests = every(nests, steps) if steps else nests
    into, _, out = shapes(graph, graph.valuation(values))
    out = _every(np.empty(out), steps).shape
    lanes = (target or own_target()).lanes
    if kind in ("plane", "bands"):
        return plane_lanes(nests, (into, out), lanes, formats, epilogue, 3 if kind == "bands" else None)
    return sample_lanes(nests, (into, out), lanes, formats, epilogue)


def program_of(lanes: Lanes, name: str, target: Target | None = None) -> Program:
    """Return the program with the schedules that the model ranks first."""
    return lanes.program(name, [schedules(code, target or own_target(), 1)[0] for code in lanes.codes()])


def compiled(programs: Sequence[Program], folder: Path, *extra: str) -> Any:
    """Return a library of programs, which is not optimized: what they compute is the same, and compilers take half the time."""
    return ctypes.CDLL(str(library(whole_file(programs, own_target().lanes), own_target(), folder, "kernels", ("-O0", *extra))))


def difference(
    graph: PGraph,
    values: Valuation,
    program: Program,
    binary: Any,
    epilogue: Epilogue = NO_EPILOGUE,
    threads: Sequence[int] = (1,),
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    steps: Sequence[int] = (),
) -> float:
    """Return the largest difference of a program's output from the interpreter's, as a share of the largest value.

    Lanes that hold no sample hold NaN. There is a run for each number of threads.
    """
    into, weight_shapes, out = shapes(graph, graph.valuation(values))
    out = _every(np.empty(out), steps).shape
    random = np.random.default_rng(0)
    x, residual = random.standard_normal(into, np.float32), random.standard_normal(out, np.float32)
    weights = [random.standard_normal(shape, np.float32) for shape in weight_shapes]
    scale, shift = random.standard_normal((2, 1 if epilogue.channel is None else out[epilogue.channel]), np.float32)
    vectors = (scale, shift, stored(residual, formats[1]))
    exact = interpret(graph, values, x.astype(np.float64), *(weight.astype(np.float64) for weight in weights))
    exact = _every(exact, steps)
    along = [-1 if axis == epilogue.channel else 1 for axis in range(len(out))]
    exact = exact * scale.reshape(along) if epilogue.scale else exact
    exact = exact + shift.reshape(along) if epilogue.shift else exact
    exact = exact + residual if epilogue.residual else exact
    exact = EXACT[epilogue.activation](exact)
    if not exact.size:
        return 0.0
    runs = [outputs(out, program, binary, stored(x, formats[0]), weights, vectors, n, formats[1]) for n in threads]
    runs = [np.moveaxis(y, -1, 1) if formats[1] == "channels_last" else y for y in runs]
    largest = np.max([np.abs(from_lanes(y, out) - exact) for y in runs])  # NaN where an output is
    return float(largest / max(np.abs(exact).max(), 1e-30))


def _every(tensor: NDArray[Any], steps: Sequence[int]) -> NDArray[Any]:
    return tensor[tuple(slice(None, None, step) for step in steps)]


def outputs(
    shape: Sequence[int],
    program: Program,
    binary: Any,
    x: NDArray[Any],
    weights: Sequence[NDArray[Any]],
    vectors: Sequence[NDArray[Any]] = (),
    threads: int = 1,
    form: Format = "contiguous",
) -> NDArray[Any]:
    """Return what a program computes, of this shape and in a format. `vectors` are the scale, the shift and the residual."""
    y = stored(np.full(shape, np.nan, np.float32), form)
    memory = aligned(program.scratch * threads)
    unused = [np.zeros(1, np.float32)] * (3 - len(vectors))
    tensors = (x, stored(program.factors(weights), "contiguous"), y, *vectors, *unused, memory)
    pointers = [ctypes.c_void_p(tensor.ctypes.data) for tensor in tensors]
    getattr(binary, program.name)(*pointers, ctypes.c_long(program.samples), ctypes.c_int(threads))
    return y


def stored(tensor: NDArray[Any], form: Format) -> NDArray[Any]:
    """Return a tensor in a format, at an address that vectors are loaded from."""
    if form == "lanes":
        lanes = own_target().lanes
        padded = np.pad(tensor, [(0, -len(tensor) % lanes), *[(0, 0)] * (tensor.ndim - 1)], constant_values=np.nan)
        tensor = np.moveaxis(padded.reshape(-1, lanes, *tensor.shape[1:]), 1, -1)
    if form == "channels_last":
        tensor = np.moveaxis(tensor, 1, -1)
    found = aligned(tensor.size).reshape(tensor.shape)
    found[...] = tensor
    return found


def evaluated(nest: Nest, x: NDArray[Any], weights: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return what a nest computes for one sample, by its tables."""
    padded = np.pad(x, [(axis.before, axis.after) for axis in nest.source]) if nest.source else x
    extents = [loop.extent for loop in nest.loops]

    def over_loops(loops: Sequence[int], table: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(table).reshape([extents[loop] if loop in loops else 1 for loop in range(len(extents))])

    places = tuple(
        sum((over_loops(t.loops, t.table) for t in axis.index), np.full([1] * len(extents), axis.before))
        for axis in nest.source
    )
    read = padded[places] if places else padded.reshape([1] * len(extents))
    if nest.factor is not None:
        read = read * over_loops(nest.factor.loops, nest.factor.values(weights))
    total = np.broadcast_to(read, extents).sum(axis=tuple(at for at, loop in enumerate(nest.loops) if loop.is_summed))
    result: NDArray[Any] = total.reshape(nest.target)
    return result

"""Native kernels compute what the interpreter computes, in every form, and touch no memory but their own."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from native_kernels import TOLERANCE, compiled, difference, evaluated, lanes_of, outputs, program_of
from small_values import random_tensors, small_values
from strategies import pgraphs

from syno.algebra import Valuation
from syno.base.errors import LoweringError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.interpreter import interpret
from syno.lower.native.activations import EXACT
from syno.lower.native.layouts import Format
from syno.lower.native.nests import nest_plan
from syno.lower.native.plane_lanes import PlaneLanes
from syno.lower.native.program import Epilogue, Program, whole_file
from syno.lower.native.source import FOLDER, HEADERS
from syno.lower.native.target import TARGETS, Target, own_target
from syno.lower.plan import candidates, fewest_flops
from syno.measure.native.build import FLAGS
from syno.measure.native.layers import convolution

QUICK = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
Case: TypeAlias = tuple[PGraph, Valuation]
RESIDUAL = Epilogue(channel=1, scale=True, shift=True, residual=True, activation="relu")
FORMATS: tuple[Format, ...] = ("contiguous", "lanes")
SOME = ("conv2d", "operator_1", "shift_conv1x1", "gpt2_projection")
LAYER = {"C_in": 32, "C_out": 64, "C": 8, "H": 8, "M": 5, "K": 8, "seq_len": 4, "H_in": 96}


def library_operators(batch: int, names: Iterable[str] = OPERATORS, **sizes: int) -> list[Case]:
    """Return operators of the library, each with its sizes."""
    given = {**LAYER, "N": batch, **sizes}
    graphs = [OPERATORS[name]() for name in names]
    return [(graph, graph.valuation({name: given[name] for name in graph.variables if name in given})) for graph in graphs]


def programs_in(kinds: Sequence[str], cases: Sequence[Case]) -> list[tuple[PGraph, Valuation, Program]]:
    """Return the program of each operator in each of these forms that it has."""
    found = []
    for number, (graph, values) in enumerate(cases):
        for kind in kinds:
            with suppress(LoweringError):  # no plane
                found.append((graph, values, program_of(lanes_of(graph, values, kind), f"operator{number}_{kind}")))
    return found


@pytest.mark.slow
@QUICK
@given(pgraphs(max_weights=3))
def test_tables_of_random_operators(graph: PGraph) -> None:
    values = small_values(graph)
    x, *weights = random_tensors(graph, values)
    nests = nest_plan(fewest_flops(candidates(graph, values)), values)
    into, out = [at for at, _, _ in nests.through], [at for _, at, _ in nests.through]
    samples = x.transpose([*into, *nests.inputs])
    results = []
    for sample in samples.reshape(-1, *samples.shape[len(into) :]):
        value = sample
        for nest in nests.nests:
            value = evaluated(nest, value, weights)
        results.append(value)
    exact = interpret(graph, values, x, *weights).transpose([*out, *nests.outputs])
    np.testing.assert_allclose(np.stack(results).reshape(exact.shape), exact, atol=1e-9)


@pytest.mark.parametrize("names", [pytest.param(SOME, id="some"), pytest.param(OPERATORS, id="all", marks=pytest.mark.slow)])
def test_kernels_of_known_operators(names: Iterable[str], tmp_path: Path) -> None:
    """With 11 samples, which do not fill a vector, and with one, on two threads."""
    cases = programs_in(["plane", "bands"], library_operators(11, names))
    cases += programs_in(["samples"], library_operators(1, names, H=2))
    binary = compiled([program for _, _, program in cases], tmp_path)
    for graph, values, program in cases:
        assert difference(graph, values, program, binary, threads=(1, 2)) < TOLERANCE, program.name


def test_kernels_of_random_operators(tmp_path: Path) -> None:
    drawn: list[Case] = []

    @settings(QUICK, max_examples=20)
    @given(pgraphs(max_weights=2))
    def draw(graph: PGraph) -> None:
        drawn.append((graph, small_values(graph)))

    draw()
    cases = programs_in(["flat"], drawn)
    binary = compiled([program for _, _, program in cases], tmp_path)
    for graph, values, program in cases:
        assert difference(graph, values, program, binary) < TOLERANCE, f"{program.name}\n{graph}"


def test_samples_whose_first_and_last_are_as_far_apart_as_neighbours(tmp_path: Path) -> None:
    """Axes that stay as they are, in another order in the output: samples lie anywhere between the first and the last one."""
    cases: list[Case] = []
    lanes = own_target().lanes
    for number, (order, extents) in enumerate(product(permutations("ABD"), [(2, lanes // 4, 2), (3, lanes, 2)])):
        build = Builder("A, B, D, C, O", name=f"exchanged_{number}")
        o, *samples = build.output(f"O, {', '.join(order)}")
        (c,) = build.contract(outer=[o], inner=build.reduce("C"))
        graph = build.finish([c, *(samples[order.index(name)] for name in "ABD")])
        cases.append((graph, graph.valuation({**dict(zip("ABD", extents, strict=True)), "C": 3, "O": 2})))
    programs = programs_in(["flat"], cases)
    binary = compiled([program for _, _, program in programs], tmp_path)
    for graph, values, program in programs:
        assert difference(graph, values, program, binary) < TOLERANCE, (graph, values)


def rotated(before: int, between: int, after: int) -> PGraph:
    """Return two convolutions along one axis, which is rotated ahead of them, between them and behind them."""
    build = Builder("N, C, D, W; k=3", name=f"rotated_{before}_{between}_{after}".replace("-", "m"))
    n, d, x = build.output("N, D, W")
    x = build.shift(x, after) if after else x
    c, j = build.contract(outer=[d], inner=build.reduce("C, k"))
    x = build.unfold(x, j)
    x = build.shift(x, between) if between else x
    c, i = build.contract([c, *build.reduce("k")])
    x = build.unfold(x, i)
    x = build.shift(x, before) if before else x
    return build.finish([n, c, x])


def test_rotated_axes_are_planes(tmp_path: Path) -> None:
    """What is rotated ahead of all windows, or behind them, is stored so; between two windows, the axis is no plane."""
    graphs = [rotated(*amounts) for amounts in ((1, 0, 0), (0, 0, 1), (2, 0, -1), (0, 1, 0))]
    cases = programs_in(["plane"], [(graph, graph.valuation({"N": 2, "C": 3, "D": 2, "W": 11})) for graph in graphs])
    assert [graph.name for graph, _, _ in cases] == ["rotated_1_0_0", "rotated_0_0_1", "rotated_2_0_m1"]
    binary = compiled([program for _, _, program in cases], tmp_path)
    for graph, values, program in cases:
        assert difference(graph, values, program, binary) < TOLERANCE, graph.name


def around_borders(*stages: tuple[int, int] | None) -> PGraph:
    """Return convolutions one after another, the last one first.

    Each one shifts rows and columns by so many thirds of a position, plus a third for each number of its group, around the
    border; if None, it reads 3 x 3 positions, with zeros beyond the border.
    """
    name = "_".join("window" if one is None else f"{one[0]}_{one[1]}" for one in stages).replace("-", "m")
    build = Builder("N, C, O, H, W; s=3, k=3", name=f"around_{name}")
    n, channel, y, x = build.output("N, O, H, W")
    for stage in stages:
        if stage is None:
            below, i, j = build.contract(outer=[channel], inner=build.reduce("C, k, k"))
            y, x = build.unfold(y, i), build.unfold(x, j)
        else:
            below, group = build.reduce("C, s")
            y, group = build.merge(build.shift(build.split(y, group), stage[0]), "s")
            x, group = build.merge(build.shift(build.split(x, group), stage[1]), "s")
            (below,) = build.contract(outer=[channel, group], inner=[below])
        channel = below
    return build.finish([n, channel, y, x])


def programs_around_borders(sizes: Sequence[tuple[int, int]]) -> list[tuple[PGraph, Valuation, Program, Sequence[int]]]:
    """Return programs whose halos hold the elements of the other border, in planes and bands, with the steps of each."""
    graphs = [(around_borders(*stages), 1) for stages in (((4, -8),), (None, (-1, 1)), ((2, -1), None), ((1, -2), (-5, 7)))]
    found = []
    for (graph, step), (height, width) in product([*graphs, (graphs[0][0], 2)], sizes):
        values = graph.valuation({"N": 2, "C": 3, "O": 5, "H": step * height, "W": step * width})
        steps = (1, 1, step, step)
        for kind in ("plane", "bands"):
            # no bands where a window's rows end at the border of what is then read around it
            with suppress(*([LoweringError] if kind == "bands" else [])):
                lanes = lanes_of(graph, values, kind, epilogue=RESIDUAL, steps=steps)
                assert isinstance(lanes, PlaneLanes) and [axis.extent for axis in lanes.plane] == [height, width]
                name = f"{graph.name}_{kind}_{height}_{step}"
                found.append((graph, values, program_of(lanes, name), steps))
    return found


@pytest.mark.slow
def test_shifts_by_a_loop_are_halos_that_wrap(tmp_path: Path) -> None:
    cases = programs_around_borders([(11, 9), (2, 3)])
    with_bands = {program.name for _, _, program, _ in cases if "_bands_11_" in program.name}
    assert with_bands == {
        f"around_{name}" for name in ("4_m8_bands_11_1", "4_m8_bands_11_2", "window_m1_1_bands_11_1", "1_m2_m5_7_bands_11_1")
    }
    binary = compiled([program for _, _, program, _ in cases], tmp_path)
    for graph, values, program, steps in cases:
        assert difference(graph, values, program, binary, RESIDUAL, (1, 2), steps=steps) < TOLERANCE, program.name


@pytest.mark.parametrize(("size", "extents"), [((9, 1), [9]), ((1, 9), [9])])
def test_a_plane_of_width_or_height_one_has_one_axis(size: tuple[int, int], extents: list[int], tmp_path: Path) -> None:
    graph = around_borders((1, -4))
    values = graph.valuation({"N": 2, "C": 3, "O": 5, "H": size[0], "W": size[1]})
    lanes = lanes_of(graph, values, "plane")
    assert isinstance(lanes, PlaneLanes) and [axis.extent for axis in lanes.plane] == extents
    program = program_of(lanes, "one")
    assert difference(graph, values, program, compiled([program], tmp_path)) < TOLERANCE


def exchanged() -> PGraph:
    """Return two convolutions one after another, which read rows as columns."""
    build = Builder("N, C, O, H, W; k=3", name="exchanged")
    n, o, y, x = build.output("N, O, H, W")
    c, j, column = build.contract(outer=[o], inner=build.reduce("C, k, k"))
    y, x = build.unfold(y, j), build.unfold(x, column)
    c, i = build.contract([c, *build.reduce("k")])
    return build.finish([n, c, x, build.unfold(y, i)])


def one_axis() -> PGraph:
    """Return a convolution whose rows are shifted, and whose columns are read through two windows, whose borders differ."""
    build = Builder("N, C, O, H, W; k=3", name="one_axis")
    n, o, y, x = build.output("N, O, H, W")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C, k, k"))
    return build.finish([n, c, build.unfold(build.unfold(x, i), j), build.shift(y, 1)])


def test_a_plane_may_be_one_axis_before_others(tmp_path: Path) -> None:
    graph = one_axis()
    sizes = ((11, 9), (5, 6), (2, 3), (16, 24))
    cases: list[tuple[Valuation, tuple[Format, Format], Program]] = []
    for (height, width), form in product(sizes, ("contiguous", "channels_last")):
        values = graph.valuation({"N": 2, "C": 3, "O": 9, "H": height, "W": width})
        lanes = lanes_of(graph, values, "plane", (form, form), RESIDUAL)
        assert isinstance(lanes, PlaneLanes) and [axis.extent for axis in lanes.plane] == [height]
        cases.append((values, (form, form), program_of(lanes, f"{form}_{height}")))
    binary = compiled([program for _, _, program in cases], tmp_path)
    for values, formats, program in cases:
        assert difference(graph, values, program, binary, RESIDUAL, formats=formats) < TOLERANCE, program.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "step"), [(exchanged(), 1), (convolution(False), 2), pytest.param(convolution(False), 5, marks=pytest.mark.slow)]
)
def test_planes_that_are_no_copies(graph: PGraph, step: int, tmp_path: Path) -> None:
    """Neighbours in memory are none in scratch: rows are read as columns, or a plane has the positions of a stride."""
    cases: list[tuple[Valuation, tuple[Format, Format], Program]] = []
    steps = (1, 1, step, step)
    for height, width in ((11, 9), (5, 6), (2, 3), (16, 24)):
        given = {"N": 2, "C": 3, "O": 9, "G": 1, "H": step * height, "W": step * width}
        values = graph.valuation({name: given[name] for name in graph.variables if name in given})
        for kind, form in product(("plane", "bands"), ("contiguous", "channels_last")):
            formats: tuple[Format, Format] = (form, form)
            lanes = lanes_of(graph, values, kind, formats, RESIDUAL, steps=steps)
            cases.append((values, formats, program_of(lanes, f"{kind}_{form}_{height}")))
    binary = compiled([program for _, _, program in cases], tmp_path)
    for values, formats, program in cases:
        found = difference(graph, values, program, binary, RESIDUAL, formats=formats, steps=steps)
        assert found < TOLERANCE, program.name


@pytest.mark.parametrize("epilogue", [
    Epilogue(channel=1, scale=True, shift=True),
    Epilogue(channel=1, shift=True, activation="relu"),
    RESIDUAL,
    Epilogue(residual=True),
])  # fmt: skip
def test_epilogues(epilogue: Epilogue, tmp_path: Path) -> None:
    graph = OPERATORS["separable_conv2d"]()
    values = graph.valuation({"N": 10, "C_in": 5, "C_out": 7, "H": 5})
    cases: list[tuple[str, tuple[Format, Format]]] = [(kind, ("contiguous", "contiguous")) for kind in ("plane", "bands")]
    cases += [("samples", (into, out)) for into in FORMATS for out in FORMATS]
    programs = [
        program_of(lanes_of(graph, values, kind, formats, epilogue), f"{kind}_{number}")
        for number, (kind, formats) in enumerate(cases)
    ]
    binary = compiled(programs, tmp_path)
    for program, (_, formats) in zip(programs, cases, strict=True):
        assert difference(graph, values, program, binary, epilogue, (1, 2), formats) < TOLERANCE, formats


SPECIAL = (math.nan, math.inf, 0.0, 1e-45, 1e-40, 86.9, 87.4, 88.3, 88.6, 89.1, 1e13, 6e37, 1e38, 2e38, 3.4028235e38)


def test_activations_are_exact_to_float_precision(tmp_path: Path) -> None:
    """And PyTorch's where a number is none, has no bound, is too small to be normal, or is of any other size."""
    graph = OPERATORS["conv1x1"]()
    values = graph.valuation({"N": 64, "C_in": 1, "C_out": 1, "H": 16})
    programs = {
        name: program_of(lanes_of(graph, values, "flat", epilogue=Epilogue(activation=name)), f"activation_{name}")
        for name in EXACT
    }
    binary = compiled(list(programs.values()), tmp_path)
    count = 64 * 16 * 16 // 2 - len(SPECIAL)
    near = np.geomspace(1e-8, 200, count // 2)
    magnitudes = np.concatenate([near, np.geomspace(200, 3e38, count - len(near)), SPECIAL]).astype(np.float32)
    x = np.concatenate([magnitudes, -magnitudes])
    given = x.reshape(64, 1, 16, 16)
    for name, program in programs.items():
        y = outputs(given.shape, program, binary, given, [np.ones((1, 1), np.float32)]).reshape(-1)
        exact = getattr(torch.nn.functional, name.removesuffix("_tanh"), lambda value: value)
        told = {"approximate": "tanh"} if name == "gelu_tanh" else {}
        in_float, in_double = (exact(one, **told).numpy() for one in (torch.from_numpy(x), torch.from_numpy(x).double()))
        is_finite = np.isfinite(in_float)
        np.testing.assert_array_equal(y[~is_finite], in_float[~is_finite], name)
        expected = in_double[is_finite]
        allowed = 4e-7 * np.minimum(np.abs(x[is_finite]), 200) if name.startswith("gelu") else 1e-6 * np.abs(expected)
        assert (np.abs(y[is_finite] - expected) <= allowed + 1e-35).all(), name


def test_a_wrong_kernel_differs(tmp_path: Path) -> None:
    """What the comparison would say of a kernel that reads beside the right place."""
    graph = OPERATORS["conv2d"]()
    values = graph.valuation({"N": 8, "C_in": 3, "C_out": 4, "H": 5})
    program = program_of(lanes_of(graph, values, "plane"), "planted")
    source = program.source.replace("load_unaligned(xr + 1)", "load_unaligned(xr + 2)")
    assert source != program.source
    binary = compiled([replace(program, source=source)], tmp_path)
    assert difference(graph, values, program, binary) > 100 * TOLERANCE


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_code_compiles_for_each_processor(target: Target, tmp_path: Path) -> None:
    """It is compiled only: this machine may not run it."""
    graph = OPERATORS["operator_1"]()
    values = graph.valuation({"N": 8, "C_in": 32, "C_out": 64, "H": 6})
    programs = [program_of(lanes_of(graph, values, kind, target=target), kind, target) for kind in ("samples", "plane")]
    compiler = shutil.which("aarch64-linux-gnu-g++") if target.name == "neon" else shutil.which("g++")
    if compiler is None:
        pytest.skip(f"no compiler for {target.name}")
    source = tmp_path / "kernels.cpp"
    source.write_text(whole_file(programs, target.lanes))
    arguments = [
        compiler,
        *FLAGS,
        "-O1",
        *target.flags,
        "-fopenmp",
        "-Wall",
        "-Werror",
        "-o",
        str(tmp_path / "kernels.so"),
        str(source),
    ]
    said = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


def test_each_header_compiles_by_itself_without_warnings(tmp_path: Path) -> None:
    for name in HEADERS:
        (tmp_path / name).with_suffix(".cpp").write_text(f'#include "{name}"\n')
    command = ["g++", "-std=c++17", "-fopenmp", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-I{FOLDER}"]
    said = subprocess.run([*command, *tmp_path.glob("*.cpp")], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert sorted(HEADERS) == sorted(file.name for file in FOLDER.glob("*.h"))


ASKED = "import sys; sys.path[:0] = {paths!r}; from test_native_kernels import run_all; run_all({folder!r})"


@pytest.mark.slow
def test_no_access_outside_of_buffers(tmp_path: Path) -> None:
    """AddressSanitizer watches a process in which every operator of the library is computed."""
    runtime = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    code = ASKED.format(paths=[str(Path(__file__).parent), *sys.path], folder=str(tmp_path))
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    assert "all computed" in said.stdout


def run_all(folder: str) -> None:
    """Compute the operators of the library, with planes and across samples, with code that AddressSanitizer watches.

    It is not optimized, which takes minutes with what watches: no access is left out.
    """
    cases = programs_in(["plane", "bands"], library_operators(3, H=10)) + programs_in(["samples"], library_operators(1, H=2))
    binary = compiled([program for _, _, program in cases], Path(folder), "-fsanitize=address")
    for graph, values, program in cases:
        assert difference(graph, values, program, binary) < TOLERANCE, program.name
    around = programs_around_borders([(11, 9), (2, 3)])
    binary = compiled([program for _, _, program, _ in around], Path(folder), "-fsanitize=address")
    for graph, values, program, steps in around:
        assert difference(graph, values, program, binary, RESIDUAL, steps=steps) < TOLERANCE, program.name
    print("all computed")

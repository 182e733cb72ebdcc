"""The loops generator: its C, compiled, computes what the interpreter says."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from strategies import pgraphs

from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.lower.compose import Composition, compositions
from syno.lower.interpreter import interpret, shapes
from syno.lower.loops import to_c
from syno.lower.plan import Plan, candidates

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: there is no `cc` on the path")
TOLERANCE = 1e-4

Array = NDArray[np.float32]
Compile = Callable[[Plan], Callable[..., Array]]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a plan; what it returns takes values, input and weights, and gives the output."""
    folder = tmp_path_factory.mktemp("loops")

    def compile_plan(made: Plan) -> Callable[..., Array]:
        graph = made.staged
        source = to_c(made)
        stem = folder / str(len(list(folder.iterdir())))
        stem.with_suffix(".c").write_text(source, encoding="utf-8")
        options = ["-std=c99", "-Wall", "-Werror", "-O0", "-shared", "-fPIC"]
        command = [str(COMPILER), *options, str(stem.with_suffix(".c")), "-o", str(stem.with_suffix(".so"))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{source}"
        function = ctypes.CDLL(str(stem.with_suffix(".so")))[re.sub(r"\W", "_", graph.name)]
        function.restype = None

        def call(values: dict[str, int], *tensors: Array) -> Array:
            valuation = graph.variables.valuation(values)
            result = np.full(shapes(graph, valuation)[2], np.nan, dtype=np.float32)  # what is not written shows
            given = [np.ascontiguousarray(tensor) for tensor in (*tensors, result)]
            given[-1] = result
            pointers = [ctypes.c_void_p(tensor.ctypes.data) for tensor in given]
            function(*[ctypes.c_int(valuation[name]) for name in graph.variables], *pointers)
            return result

        return call

    return compile_plan


def random_tensors(graph: PGraph, values: dict[str, int]) -> list[Array]:
    generator = np.random.default_rng(0)
    input_shape, weight_shapes, _ = shapes(graph, graph.variables.valuation(values))
    return [generator.standard_normal(shape).astype(np.float32) for shape in (input_shape, *weight_shapes)]


def assert_agrees(made: Plan, values: dict[str, int], compiled: Compile) -> None:
    graph = made.staged
    tensors = random_tensors(graph, values)
    expected = interpret(graph, values, *(tensor.astype(np.float64) for tensor in tensors))
    computed = compiled(made)(values, *tensors)
    assert computed.shape == expected.shape
    np.testing.assert_allclose(computed, expected, rtol=0, atol=TOLERANCE * max(1.0, np.abs(expected).max(initial=0)))


# 1 and 2 are the sizes at which a wrong index is least likely to show: all are different where they can be
SMALL = {"N": 2, "M": 3, "K": 5, "C": 3, "C_in": 12, "C_out": 24, "H": 6, "H_in": 96, "seq_len": 3, "g": 2, "s": 3, "r": 5, "u": 4}


def small_values(graph: PGraph) -> dict[str, int]:
    values = {name: SMALL[name] for name in graph.variables if name in SMALL}
    assert set(values) | set(graph.variables.defaults) == set(graph.variables)
    return values


@needs_compiler
class TestAgreesWithTheInterpreter:
    @pytest.mark.parametrize("name", OPERATORS)
    def test_known_operators(self, name: str, compiled: Compile) -> None:
        graph = OPERATORS[name]()
        values = small_values(graph)
        assert_agrees(plan(graph, values), values, compiled)

    @pytest.mark.parametrize("name", ["conv2d", "dilated_conv2d", "operator_2", "nas_pte_sequence_3"])
    def test_even_windows(self, name: str, compiled: Compile) -> None:
        graph = OPERATORS[name]()
        values = small_values(graph) | {next(v for v in graph.variables if v.startswith("k")): 4}
        assert_agrees(plan(graph, values), values, compiled)

    @pytest.mark.parametrize("name", ["operator_1", "operator_2", "stacked_convolution", "low_rank_conv2d"])
    def test_every_order_of_work(self, name: str, compiled: Compile) -> None:
        graph = OPERATORS[name]()
        values = small_values(graph)
        plans = candidates(graph, values)
        assert len(plans) >= 2
        for made in plans:
            assert_agrees(made, values, compiled)

    def test_one_function_takes_any_sizes(self, compiled: Compile) -> None:
        graph = OPERATORS["conv2d"]()
        function = compiled(plan(graph, small_values(graph)))
        for values in ({"N": 1, "C_in": 1, "C_out": 1, "H": 1, "k": 1}, {"N": 3, "C_in": 2, "C_out": 5, "H": 4, "k": 2}):
            tensors = random_tensors(graph, values)
            np.testing.assert_allclose(function(values, *tensors), interpret(graph, values, *tensors), rtol=0, atol=1e-4)

    def test_composed_weights(self, compiled: Compile) -> None:
        """The function takes the composed weight; with it, it computes what the operator does."""
        graph = OPERATORS["operator_1"]()
        values = small_values(graph)
        made = [made for made in candidates(graph, values, inference=True) if made.composition is not None]
        assert made
        assert isinstance(made[0].composition, Composition) and compositions(graph)
        for one in made:
            assert_agrees(one, values, compiled)

    @settings(
        deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(graph=pgraphs())
    def test_random_operators(self, compiled: Compile, graph: PGraph) -> None:
        assert_agrees(plan(graph, {}), {}, compiled)

    @pytest.mark.slow
    @settings(deadline=None, derandomize=True, max_examples=1500)
    @given(graph=pgraphs(max_weights=3))
    def test_many_random_operators(self, compiled: Compile, graph: PGraph) -> None:
        for made in candidates(graph, {}):
            assert_agrees(made, {}, compiled)


@needs_compiler
class TestRounding:
    """C divides towards zero, coordinates divide downwards."""

    @pytest.mark.parametrize("amount", [-1, -3, -8, 2])
    def test_a_part_of_a_rotated_axis(self, amount: int, compiled: Compile) -> None:
        """The quotient of a Merge above a Shift to the left is negative before its remainder is taken."""
        build = Builder("A=4, B=5; s=3", name="rotated")
        i, j = build.output("s*A, B")
        graph = build.finish([j, *build.merge(build.shift(i, amount), "s")])
        assert_agrees(plan(graph, {}), {}, compiled)

    @pytest.mark.parametrize("amount", [-1, -7])
    def test_a_quotient_of_a_quotient(self, amount: int, compiled: Compile) -> None:
        build = Builder("A=4; s=3, k=2", name="rotated")
        (i,) = build.output("k*s*A")
        outer, inner = build.merge(build.shift(i, amount), "s")
        graph = build.finish([*build.merge(build.shift(outer, amount), "k"), inner])
        assert_agrees(plan(graph, {}), {}, compiled)

    def test_windows_of_an_even_size(self, compiled: Compile) -> None:
        build = Builder("A=4; s=3, k=2", name="window")
        i, j = build.output("A, k*s")
        graph = build.finish([build.unfold(i, j)])
        assert_agrees(plan(graph, {}), {}, compiled)


class TestText:
    def test_conv2d(self) -> None:
        graph = OPERATORS["conv2d"]()
        text = to_c(plan(graph, {"N": 2, "C_in": 3, "C_out": 4, "H": 5}))
        assert text == """\
#include <stdlib.h>

void conv2d(int C_in, int C_out, int H, int N, int k, const float x[N][C_in][H][H], const float w1[C_out][C_in][k][k], float y[N][C_out][H][H]) {
  // stage 1: multiply with w1 and sum over r0, r1, r2
  for (int i0 = 0; i0 < N; ++i0) {
    for (int i1 = 0; i1 < C_out; ++i1) {
      for (int i2 = 0; i2 < H; ++i2) {
        for (int i3 = 0; i3 < H; ++i3) {
          float sum = 0;
          for (int r0 = 0; r0 < C_in; ++r0) {
            for (int r1 = 0; r1 < k; ++r1) {
              for (int r2 = 0; r2 < k; ++r2) {
                if (0 <= i2 + r1 - k/2 && i2 + r1 - k/2 < H && 0 <= i3 + r2 - k/2 && i3 + r2 - k/2 < H) sum += x[i0][r0][i2 + r1 - k/2][i3 + r2 - k/2] * w1[i1][r0][r1][r2];
              }
            }
          }
          y[i0][i1][i2][i3] = sum;
        }
      }
    }
  }
}
"""  # noqa: E501

    def test_names_become_identifiers(self) -> None:
        build = Builder("A", name="roll by 1, twice")
        graph = build.finish(build.output("A"))
        assert "void roll_by_1__twice(int A, " in to_c(plan(graph, {"A": 2}))

    def test_helpers_are_there_where_they_are_needed(self) -> None:
        for name, make in OPERATORS.items():
            graph = make()
            text = to_c(plan(graph, small_values(graph)))
            for helper in ("floor_mod", "floor_div"):
                assert text.count(f"{helper}(") != 1, name  # a definition and a call, or neither

    def test_stages_hold_their_results(self) -> None:
        graph = OPERATORS["low_rank_conv2d"]()
        text = to_c(plan(graph, small_values(graph)))
        assert text.count("// stage") == 2
        assert text.count("= malloc(") == text.count("free(t") == 1


def test_there_is_a_place_for_each_operators_sizes() -> None:
    assert all(small_values(make()) for make in OPERATORS.values())


def test_generated_files_go_to_a_folder_of_their_own(tmp_path: Path) -> None:
    before = set(Path.cwd().iterdir())
    to_c(plan(OPERATORS["matmul"](), {"M": 2, "K": 2, "N": 2}))
    assert set(Path.cwd().iterdir()) == before

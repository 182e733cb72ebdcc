"""The loops generator: its C, compiled, computes what the interpreter says."""

from __future__ import annotations

import ctypes
import keyword
import re
import shutil
import subprocess
from collections.abc import Callable

import golden_files
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from quick_cases import quick_cases
from strategies import pgraphs

from syno.algebra.code_names import C
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.lower.interpreter import interpret, shapes
from syno.lower.loops import LIBRARY, to_c
from syno.lower.plan import Plan, candidates

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: there is no `cc` on the path")
TOLERANCE = 1e-4


def batched(names: list[str], count: int) -> list[list[str]]:
    return [names[start : start + count] for start in range(0, len(names), count)]


Array = NDArray[np.float32]
Compile = Callable[[Plan], Callable[..., Array]]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a plan; what it returns takes values, input and weights, and gives the output."""
    folder = tmp_path_factory.mktemp("loops")

    def compile_plan(made: Plan, standard: str = "c99") -> Callable[..., Array]:
        graph = made.staged
        source = to_c(made)
        stem = folder / str(len(list(folder.iterdir())))
        stem.with_suffix(".c").write_text(source, encoding="utf-8")
        options = [f"-std={standard}", "-Wall", "-Werror", "-O0", "-shared", "-fPIC"]
        command = [str(COMPILER), *options, str(stem.with_suffix(".c")), "-o", str(stem.with_suffix(".so"))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{source}"
        (name,) = re.findall(r"^void (\w+)\(", source, re.MULTILINE)
        function = ctypes.CDLL(str(stem.with_suffix(".so")))[name]
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


# different where they can be, so that no two axes are mistaken for each other
SMALL = {
    "N": 2,
    "M": 3,
    "K": 5,
    "C": 3,
    "C_in": 12,
    "C_out": 24,
    "H": 6,
    "H_in": 96,
    "seq_len": 3,
    "g": 2,
    "s": 3,
    "r": 5,
    "u": 4,
}


def small_values(graph: PGraph) -> dict[str, int]:
    values = {name: SMALL[name] for name in graph.variables if name in SMALL}
    assert set(values) | set(graph.variables.defaults) == set(graph.variables)
    return values


def restricted(graph: PGraph, values: dict[str, int]) -> dict[str, int]:
    """The values of those variables that the operator has."""
    return {name: value for name, value in values.items() if name in graph.variables}


@needs_compiler
class TestAgreesWithTheInterpreter:
    @pytest.mark.parametrize("name", quick_cases(OPERATORS, {"conv2d", "operator_1", "gpt2_projection"}.__contains__))
    def test_known_operators(self, name: str, compiled: Compile) -> None:
        graph = OPERATORS[name]()
        values = small_values(graph)
        assert_agrees(plan(graph, values), values, compiled)

    @pytest.mark.parametrize("name", ["conv2d", "dilated_conv2d", "operator_2", "nas_pte_sequence_3"])
    def test_even_windows(self, name: str, compiled: Compile) -> None:
        graph = OPERATORS[name]()
        values = small_values(graph) | {next(v for v in graph.variables if v.startswith("k")): 4}
        assert_agrees(plan(graph, values), values, compiled)

    def test_every_order_of_work(self, compiled: Compile) -> None:
        """Two weights that need not wait for each other, and a sum that needs neither."""
        build = Builder("N=2, A=3, B=5, C=7, D=4; s=2", name="two_sides")
        n, o, p = build.output("N, C, D")
        (a,) = build.contract(outer=[o], inner=build.reduce("A"))
        (b,) = build.contract(outer=[p], inner=build.reduce("B"))
        graph = build.finish([n, b, a, *build.reduce("s")])
        plans = candidates(graph, {})
        assert {tuple(number for stage in made.stages for number in stage.weights) for made in plans} == {(1, 2), (2, 1)}
        for made in plans:
            assert_agrees(made, {}, compiled)

    def test_one_function_takes_any_sizes(self, compiled: Compile) -> None:
        graph = OPERATORS["conv2d"]()
        function = compiled(plan(graph, small_values(graph)))
        for values in ({"N": 1, "C_in": 1, "C_out": 1, "H": 1, "k": 1}, {"N": 3, "C_in": 2, "C_out": 5, "H": 4, "k": 2}):
            tensors = random_tensors(graph, values)
            np.testing.assert_allclose(function(values, *tensors), interpret(graph, values, *tensors), rtol=0, atol=1e-4)

    @pytest.mark.parametrize("name", ["operator_1", "operator_2", "low_rank_conv1x1", "separable_conv2d"])
    def test_composed_weights(self, name: str, compiled: Compile) -> None:
        """The function takes the composed weight; with that it computes what the operator does."""
        graph = OPERATORS[name]()
        values = small_values(graph)
        x, *weights = random_tensors(graph, values)
        expected = interpret(graph, values, x, *weights)
        plans = [made for made in candidates(graph, values, inference=True) if made.composition is not None]
        assert plans
        for made in plans:
            composition = made.composition
            assert composition is not None
            recipe = composition.recipe
            composed = interpret(
                recipe, restricted(recipe, values), weights[composition.above - 1], weights[composition.below - 1]
            )
            kept = [weights[number - 1] for number in composition.uncomposed(len(weights))]
            computed = compiled(made)(restricted(made.staged, values), x, *kept, composed)
            np.testing.assert_allclose(computed, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())

    @settings(deadline=None, derandomize=True, max_examples=15)
    @given(graph=pgraphs())
    def test_random_operators(self, compiled: Compile, graph: PGraph) -> None:
        assert_agrees(plan(graph, {}), {}, compiled)

    @pytest.mark.slow
    @settings(deadline=None, derandomize=True, max_examples=60)
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
    def test_the_code_is_that_of_the_golden_file(self) -> None:
        graph = OPERATORS["conv2d"]()
        golden_files.check("conv2d.loops.c", to_c(plan(graph, {"N": 2, "C_in": 3, "C_out": 4, "H": 5})))

    @pytest.mark.parametrize(
        ("name", "identifier"),
        [
            ("roll.by-1__twice", "roll_by_1__twice"),
            ("1x1", "operator_1x1"),
            ("float", "operator_float"),
            ("_", "_"),
            ("random", "operator_random"),  # <stdlib.h> declares it
            ("main", "operator_main"),
        ],
    )
    def test_names_become_identifiers(self, name: str, identifier: str) -> None:
        build = Builder("A", name=name)
        graph = build.finish(build.output("A"))
        assert f"void {identifier}(int A, " in to_c(plan(graph, {"A": 2}))

    @pytest.mark.parametrize("name", ["x", "y", "w1", "t1", "sum", "i0", "r0", "d0", "int", "floor_mod"])
    def test_variables_do_not_have_names_of_the_code_itself(self, name: str) -> None:
        build = Builder(f"{name}, A", name="scale")
        i, j = build.output(f"{name}, A")
        graph = build.finish([i, *build.contract(inner=[j, *build.reduce("A")])])
        text = to_c(plan(graph, {name: 2, "A": 3}))
        assert f"int {name}_size" in text and not re.search(rf"int {name}\b[^;]*float x", text)

    @needs_compiler
    @pytest.mark.parametrize("standard", ["c99", "gnu17"])
    def test_every_reserved_name_of_c_can_be_a_variable(self, standard: str, compiled: Compile) -> None:
        """Many variables at once, to compile little: a sum along one axis of each size."""
        names = sorted(name for name in C if not keyword.iskeyword(name))
        for some in batched(names, 12):
            build = Builder(", ".join(some), name=some[0])
            axes = build.output(", ".join(some))
            graph = build.finish([*axes[1:], *build.contract(outer=axes[:1], inner=build.reduce(some[0]))])
            made = plan(graph, dict.fromkeys(some, 2))
            values = dict.fromkeys(some, 2)
            tensors = random_tensors(graph, values)
            computed = compiled(made, standard)(values, *tensors)
            np.testing.assert_allclose(computed, interpret(graph, values, *tensors), rtol=0, atol=TOLERANCE * 4)

    @needs_compiler
    def test_names_that_the_c_library_has_are_no_names_of_functions(self) -> None:
        source = "#define _GNU_SOURCE\n#include <stdlib.h>\n"
        command = [str(COMPILER), "-E", "-P", "-"]
        declared = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
        names = set(re.findall(r"\b([A-Za-z]\w*)\s*\(", declared)) - {"sizeof", "int", "void"}
        assert len(names) > 50
        assert names <= LIBRARY

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

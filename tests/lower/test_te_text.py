"""The text of the TVM generator. None of it needs TVM; what the text computes is in tests/property/test_te.py."""

from __future__ import annotations

import subprocess
import sys

import golden_files
import pytest

from syno.ir.builder import Builder
from syno.ir.library import OPERATORS
from syno.lower.plan import candidates
from syno.lower.tvm import te_stages, to_te_source
from syno.lower.tvm.source import LINE_LENGTH


@pytest.mark.parametrize("name", ["conv2d", "operator_1", "operator_2", "shift_rows_conv1x1"])
def test_the_text_is_that_of_the_golden_file(name: str) -> None:
    golden_files.check(f"{name}.te.py", to_te_source(OPERATORS[name]()))


@pytest.mark.parametrize("name", OPERATORS)
def test_the_text_is_python_in_short_lines(name: str) -> None:
    text = to_te_source(OPERATORS[name]())
    compile(text, name, "exec")
    assert max(len(line) for line in text.splitlines()) <= LINE_LENGTH


def test_long_rows_are_broken_where_python_allows_it() -> None:
    """Many windows on one axis: conditions and factors have lines of their own."""
    build = Builder("A=64; k=3, s=2", name="windows")
    i, o = build.output("s^3*k^3*A, A")
    loops = build.reduce("s^2*k, s*k^2, k^3, s^3, s^2*k^2")
    at = i
    for loop in build.contract(outer=[o], inner=loops):
        at = build.unfold(at, loop)
    text = to_te_source(build.finish([at]))
    compile(text, "windows", "exec")
    assert "        inside = te.all(\n            0 <= d" in text
    assert max(len(line) for line in text.splitlines()) <= LINE_LENGTH


def test_the_guard_is_that_of_the_axis() -> None:
    """A window of rows that were rotated before: no padding of the data stands for that."""
    last = te_stages(candidates(OPERATORS["operator_2"](), {"N": 1, "C_in": 64, "C_out": 64, "H": 8})[0])[-1]
    assert "inside = te.all(0 <= d4, d4 < H)" in last.source and "padded" not in last.source


def test_axes_come_as_those_of_the_output_that_read_them() -> None:
    first, _ = te_stages(candidates(OPERATORS["operator_1"](), {"N": 1, "C_in": 64, "C_out": 64, "H": 8})[0])
    assert '"""t1[N, g, C_out/(g*s), k_1, H, H]: ' in first.source


def test_summed_axes_come_last_in_products_of_matrices() -> None:
    build = Builder("M, K, R, N", name="two_matrices")
    m, n = build.output("M, N")
    (r,) = build.contract(outer=[n], inner=build.reduce("R"))
    (k,) = build.contract(outer=[r], inner=build.reduce("K"))
    graph = build.finish([m, k])
    first, _ = te_stages(candidates(graph, {"M": 64, "K": 64, "R": 2, "N": 64})[0])
    assert '"""t1[M, R]: ' in first.source


def test_a_convolution_has_plain_affine_indices() -> None:
    """TVM's schedules know what to do with those."""
    text = to_te_source(OPERATORS["conv2d"]())
    assert "padded = topi.nn.pad(x, (0, 0, k//2, k//2), (0, 0, (k - 1)//2, (k - 1)//2)" in text
    assert "padded[i0, r0, i2 + r1, i3 + r2] * w1[i1, r0, r1, r2]" in text
    assert "rotated" not in text and "%" not in text and "if_then_else" not in text


def test_stages_name_what_they_take_and_give() -> None:
    graph = OPERATORS["operator_1"]()
    stages = te_stages(candidates(graph, {"N": 1, "C_in": 64, "C_out": 64, "H": 8})[0])
    assert [(stage.name, stage.operands, stage.result) for stage in stages] == [
        ("stage_1", ("x", "w2"), "t1"),
        ("stage_2", ("t1", "w1"), "y"),
    ]
    assert stages[-1].axes == graph.output
    assert [stage.functions for stage in stages] == [frozenset(), frozenset()]


def test_a_composed_weight_comes_last() -> None:
    graph = OPERATORS["low_rank_conv1x1"]()
    plans = candidates(graph, {"N": 1, "C_in": 64, "C_out": 64, "H": 8, "r": 4}, inference=True)
    (composed,) = [made for made in plans if made.composition is not None]
    text = to_te_source(graph, plan=composed)
    assert "    w1 = te.placeholder((C_out, C_in), dtype" in text or "    w1 = te.placeholder((C_in, C_out), dtype" in text
    assert "w2" not in text


@pytest.mark.parametrize(
    "name", ["x", "y", "w1", "t1", "stage_1", "i0", "r0", "te", "tirx", "rotated", "dtype", "product", "build"]
)
def test_variables_do_not_have_names_of_the_code_itself(name: str) -> None:
    build = Builder(f"{name}, A", name="scale")
    i, j = build.output(f"{name}, A")
    graph = build.finish([i, *build.contract(inner=[j, *build.reduce("A")])])
    source = to_te_source(graph, {name: 2, "A": 3})
    assert f"# Variables that have other names in this code: {name} is {name}_size\n" in source
    assert f"def build(A, {name}_size, dtype=" in source


def test_text_is_generated_without_tvm() -> None:
    code = (
        "import sys; sys.modules['tvm'] = None\n"
        "from syno.ir.library import OPERATORS; from syno.lower.tvm import to_te_source\n"
        "assert 'te.compute' in to_te_source(OPERATORS['conv2d']())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

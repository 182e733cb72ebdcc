"""Variables may have any legal name: generated code renames those that it needs for itself."""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syno
from syno.algebra.code_names import BUILTINS, ENDING, RESERVED, code_name, stem
from syno.export import take_home
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.interpreter import interpret, shapes
from syno.lower.plan import candidates, nominal_values
from syno.lower.pytorch.source import FUNCTIONS, NOT_AS_ARGUMENT, argument_name, load_class, to_source
from syno.lower.tvm import to_te_source
from syno.model.module import OperatorModule, build

NUMBERED = ["w1", "w2", "t1", "i0", "i1", "i2", "r0", "d0", "stage_1"]
NAMES = sorted(name for name in {*RESERVED, *NUMBERED, *(f"{name}{ENDING}" for name in ("tuple", "self", "x"))}
               if not keyword.iskeyword(name))  # fmt: skip
VALUES = (4, 6, 3, 5, 2)  # batch, channels, summed, length, window and group


def operator_with(names: list[str]) -> PGraph:
    """A batch, a group, a sum and a window: every kind of place where generated code writes a variable."""
    n, c, s, h, k = names
    return syno.parse(f"""
        operator named
        variables {n}, {c}, {s}, {h}; {k}
        output a:{n}, b:{c}, y:{h}
        r:{s} = Reduce()
        j:{k} = Reduce()
        i:{s} = Share(r, w1[0])
        t:{k} = Share(j, w1[1])
        u:{h} = Unfold(y, t)
        v:{h} = Shift(u, +1)
        q:{k}^-1*{c}, m:{k} = Merge(b, {k})
        input a:{n}, q:{k}^-1*{c}, m:{k}, i:{s}, v:{h}
        weight w1[{s}, {k}]
        """)


def batches() -> list[list[str]]:
    """Each name once in each of two places."""
    rows = [[*NAMES[start : start + 5], *NAMES][:5] for start in range(0, len(NAMES), 5)]
    return [row[turn:] + row[:turn] for row in rows for turn in (0, 3) if len(set(row)) == 5]


def test_every_name_is_tried() -> None:
    assert {name for row in batches() for name in row} == set(NAMES)


def test_what_a_module_has_is_reserved() -> None:
    module = torch.nn.Module()
    own = {*dir(torch.nn.Module), *dir(module), *vars(OperatorModule), *OperatorModule.__annotations__}
    assert {name for name in own if not name.startswith("_")} <= RESERVED
    assert set(keyword.kwlist) <= RESERVED


def generated() -> list[str]:
    sources = ["import math\nimport torch\nfrom torch.nn import functional\n" + "".join(FUNCTIONS.values())]
    for make in OPERATORS.values():
        graph = make()
        plans = candidates(graph, nominal_values(graph), inference=True)
        sources += [to_source(graph, mode=mode) for mode in ("fused", "literal")]
        sources += [write(graph, plan=plans[-1]) for write in (to_source, to_te_source)]
    return sources


def test_what_generated_code_uses_is_reserved() -> None:
    used: set[str] = set()
    for source in generated():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name | ast.arg | ast.FunctionDef):
                used.add(node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                used.add(node.attr)
    variables = {name for make in OPERATORS.values() for name in make().variables}
    functions = {name for text in FUNCTIONS.values() for name in inspect.cleandoc(text).split("(")[0].split()[1:]}
    inside = {node.id for text in FUNCTIONS.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    inside |= {node.arg for text in FUNCTIONS.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg)}
    inside |= {"amount", "extent", "index", "moved"}  # arguments and locals of functions of their own: they shadow nothing
    own = {name for name in used if code_name(name) == name and not name.startswith("__")}
    assert own - variables - (inside - functions) == set()
    assert {name for name in used if hasattr(builtins, name) and not name.startswith("__")} <= BUILTINS


def test_what_a_constructor_uses_is_no_argument() -> None:
    for source in generated()[1:]:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                loaded = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {arg.arg for arg in node.args.args}
                assert loaded - {"int"} <= NOT_AS_ARGUMENT  # annotations are evaluated outside


def test_no_reserved_name_has_the_ending() -> None:
    """So that different variables have different names in code."""
    assert [name for name in RESERVED if stem(name) != name] == []


@given(st.lists(st.sampled_from(NAMES + [name + ENDING for name in NAMES] + ["H", "H_size"]), unique=True))
def test_different_variables_have_different_names(names: list[str]) -> None:
    assert len({code_name(name) for name in names}) == len({argument_name(name) for name in names}) == len(names)
    assert not {code_name(name) for name in names} & RESERVED


@pytest.mark.parametrize("mode", ["fused", "literal"])
def test_modules_with_every_reserved_name_compute_what_they_mean(mode: str) -> None:
    random = np.random.default_rng(0)
    for names in batches():
        graph, values = operator_with(names), dict(zip(names, VALUES, strict=True))
        (x, w) = (random.normal(size=shape) for shape in (shapes(graph, graph.valuation(values))[0], (3, 2)))
        module = build(graph, values, mode=mode, seed=0).double()
        with torch.no_grad():
            module.w1.copy_(torch.from_numpy(w))
            output = module(torch.from_numpy(x))
        np.testing.assert_allclose(output, interpret(graph, values, x, w), atol=1e-12)
        assert set(module.state_dict()) == {"w1"} and module.train().eval().extra_repr()
        assert str(graph).rstrip() in module.source


def test_tensor_expressions_with_every_reserved_name_are_python() -> None:
    for names in batches():
        source = to_te_source(operator_with(names), dict(zip(names, VALUES, strict=True)))
        (function,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "build"]
        assert len(function.args.args) == 6
        compile(source, "<tensor expressions>", "exec")


@pytest.mark.slow
def test_files_with_every_reserved_name_are_checked_and_written(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    from syno.export import FORMATS

    for number, names in enumerate(batches()[::2]):
        for kind in ("module", "te"):
            assert "equal to" in FORMATS[kind].write(operator_with(names), tmp_path / f"{number}_{kind}.py", None)


def test_a_constructor_keeps_the_names_that_it_can(tmp_path: Path) -> None:
    graph = operator_with(["to", "tuple", "self", "forward", "train"])
    take_home(graph, tmp_path / "named.py")
    source = (tmp_path / "named.py").read_text(encoding="utf-8")
    assert "# Variables that have other names in this code: forward is forward_size, self is self_size, " in source
    module = load_class(source, graph)(tuple=6, self_size=3, train=2)
    assert repr(module) == "Named(self=3, tuple=6, train=2)"
    assert module(torch.ones(4, 3, 2, 3, 5)).shape == (4, 6, 5)
    with pytest.raises(ValueError, match=r"multiple of train; .*tuple = 6, train = 4"):
        load_class(source, graph)(tuple=6, self_size=3, train=4)


@pytest.mark.parametrize(("name", "kind"), [("none", "OperatorNone"), ("true", "OperatorTrue"), ("1x1", "Operator1x1"),
                                            ("_", "Operator"), ("a-b.c", "ABC"), ("super", "Super")])  # fmt: skip
def test_operators_named_as_keywords_have_a_class(name: str, kind: str) -> None:
    module = build(OPERATORS["conv1x1"]().renamed(name), {"C_in": 2, "C_out": 3, "H": 4})
    assert type(module).__name__ == kind

"""The compiled modules: what is compiled, when they are used, and that they draw the same operators."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

from syno.base import compiled
from syno.ir.library import OPERATORS
from syno.space.presets import paper

ROOT = Path(__file__).parents[2]
DRAWN = """
import sys
from random import Random
from syno.base.compiled import is_compiled
from syno.space import Sampler, Space
from syno.space.presets import paper
spec = paper("resnet18").with_(depth=8)
for reads in (None, {"H": 3}):
    sampler = Sampler(Space(spec.with_(reads=reads)), Random(0))
    while len(sampler.operators) < 8:
        sampler.draw()
    print(sampler.walks, sampler.dead_ends, *(operator.id for operator in sampler.operators))
print(is_compiled(), file=sys.stderr)
"""
SOURCE = '''
from functools import cached_property

def entered(function):
    found.append(function)

found = []

@entered
def _():
    return 1

@entered
def _():
    return 2

class Number:
    """A number with an order."""

    def __init__(self, value):
        self.value, self.times = value, 0

    def __lt__(self, other):
        return self.value < other.value

    @cached_property
    def twice(self) -> int:
        """Return it twice."""
        self.times += 1
        return 2 * self.value
'''


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("syno_setup", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(value: str) -> tuple[str, str]:
    """Draw operators in a process of its own. Returns them, and whether compiled modules did it."""
    done = subprocess.run(
        [sys.executable, "-c", DRAWN], capture_output=True, text=True, cwd=ROOT, env={**os.environ, compiled.VARIABLE: value}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.strip()


def test_compiled_modules_draw_the_same_operators() -> None:
    if not compiled.is_compiled():
        pytest.skip("there are no compiled modules that fit; `make compiled` builds them")
    fast, slow = draw(""), draw("0")
    assert (fast[1], slow[1]) == ("True", "False")
    assert fast[0] == slow[0]


def test_specs_and_operators_are_pickled() -> None:
    """Workers and compilers are given them so."""
    spec, graph = paper("resnet18"), OPERATORS["conv2d"]()
    assert pickle.loads(pickle.dumps(spec)) == spec and pickle.loads(pickle.dumps(graph)) == graph
    assert copy.deepcopy(graph.variables) == graph.variables


def test_a_prepared_module_behaves_as_before(setup: ModuleType) -> None:
    text = setup.prepared(SOURCE)
    assert "@cached_property" not in text and "def _(" not in text
    names: dict[str, object] = {}
    exec(text, names)
    one, other = names["Number"](1), names["Number"](1)  # type: ignore[operator]
    assert (one.twice, one.twice, one.times) == (2, 2, 1)
    assert one < names["Number"](3) and {one, other, one} == {one, other} and one != other  # type: ignore[operator]
    assert [function() for function in names["found"]] == [1, 2]  # type: ignore[attr-defined]
    assert isinstance(vars(names["Number"])["twice"], property) and cached_property is not property


def test_modules_to_compile_are_there(setup: ModuleType) -> None:
    assert [module for module in setup.MODULES if not (ROOT / "syno" / f"{module}.py").is_file()] == []
    assert {module.split("/")[0] for module in setup.MODULES} <= {*compiled.PACKAGES}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A build that fits, as far as can be seen without importing its modules. Tests change the list, and write it."""
    syno, folder = tmp_path / "syno", tmp_path / "syno" / "_compiled"
    for package in compiled.PACKAGES:
        (syno / package).mkdir(parents=True)
    (syno / "algebra" / "size.py").write_text("ONE = 1\n", encoding="utf-8")
    folder.mkdir()
    (folder / "size.so").touch()
    monkeypatch.setattr(compiled, "SYNO", syno)
    monkeypatch.setattr(compiled, "FOLDER", folder)
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if not isinstance(one, compiled._CompiledModules)])
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    known = {
        "suffix": EXTENSION_SUFFIXES[0],
        "sources": compiled.checksums(syno),
        "modules": {"syno_of_a_test.size": "size.so"},
    }
    (folder / compiled.LIST).write_text(json.dumps(known), encoding="utf-8")
    return known


def test_modules_that_fit_are_used(built: dict[str, object]) -> None:
    compiled.use_compiled()
    assert compiled.is_compiled()
    spec = importlib.util.find_spec("json")
    assert spec is not None and spec.origin is not None and spec.origin.endswith(".py")
    found = sys.meta_path[0].find_spec("syno_of_a_test.size", None)
    assert found is not None and found.origin == str(compiled.FOLDER / "size.so")


def test_the_variable_switches_them_off(built: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.VARIABLE, "0")
    compiled.use_compiled()
    assert not compiled.is_compiled()


def test_without_a_build_nothing_is_said(built: dict[str, object], recwarn: pytest.WarningsRecorder) -> None:
    (compiled.FOLDER / compiled.LIST).unlink()
    compiled.use_compiled()
    assert not compiled.is_compiled() and not list(recwarn)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder.parent / "algebra" / "size.py").write_text("ONE = 2\n"), "syno/algebra/size.py changed since"),
        (lambda folder: (folder.parent / "ir" / "new.py").touch(), "syno/ir/new.py changed since"),
        (lambda folder: (folder / "size.so").unlink(), "size.so is missing"),
        (lambda folder: (folder / "list.json").write_text("{"), "list.json cannot be read"),
        (
            lambda folder: (folder / "list.json").write_text('{"suffix": ".cpython-27.so"}'),
            r"they are for another Python \(.cpython-27.so",
        ),
    ],
    ids=["changed", "new", "missing", "damaged", "other Python"],
)
def test_modules_that_do_not_fit_are_not_used(built: dict[str, object], break_it, message: str) -> None:  # type: ignore[no-untyped-def]
    break_it(compiled.FOLDER)
    with pytest.warns(RuntimeWarning, match=f"{message}.*`make compiled` builds them again"):
        compiled.use_compiled()
    assert not compiled.is_compiled()

"""The layers, what importing costs, and that every module says what it is for."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import syno

ROOT = Path(syno.__file__).parents[1]
MODULES = sorted((ROOT / "syno").rglob("*.py"))
HEAVY = ("torch", "tvm", "optuna", "pandas", "matplotlib")


def named(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert syno.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_a_layer_imports_only_from_the_layers_below_it() -> None:
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    if command is None:
        pytest.skip("import-linter is not installed: pip install -e '.[dev]'")
    done = subprocess.run([command, "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: (\d+) kept, 0 broken", done.stdout)
    assert kept is not None and int(kept[1]) >= 1, done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "syno",
        "syno.algebra",
        "syno.ir.library",
        "syno.ir.drawing",
        "syno.lower.choose",
        "syno.lower.loops",
        "syno.lower.tvm",
        "syno.measure.compilers",
        "syno.measure.tuning",
    ],
)
def test_importing_a_light_module_loads_no_framework(module: str) -> None:
    loaded = run(f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))")
    assert loaded.split() == []


def test_source_is_generated_without_torch() -> None:
    """Only running it needs torch."""
    code = """
import sys
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.lower.pytorch.source import to_source
graph = OPERATORS["conv2d"]()
values = graph.variables.valuation(N=1, C_in=4, C_out=4, H=8)
assert "nn.Module" in to_source(graph, values, plan=plan(graph, values))
print("torch" in sys.modules)
"""
    assert run(code) == "False\n"


def test_every_module_has_a_docstring() -> None:
    docstrings = {named(path): ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert [name for name, text in docstrings.items() if not (text or "").split("\n")[0].endswith((".", "!", "?", ":"))] == []


def test_every_module_has_a_name_that_says_what_it_holds() -> None:
    assert {path.stem for path in MODULES} & {"utils", "util", "helpers", "manager", "common", "misc"} == set()


def test_there_are_modules() -> None:
    assert {"syno", "syno.algebra.size", "syno.ir.graph", "syno.lower.interpreter"} <= set(map(named, MODULES))


def test_the_page_on_architecture_names_every_room_from_the_top() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"\|  (\w+) +\S.*\|$", page, re.MULTILINE)
    assert ["__main__", *drawn] == layers
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(drawn)

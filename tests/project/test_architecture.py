"""The layers, what importing costs, and that every module says what it is for."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from product_sources import trees

import syno
from syno.model.networks import NUMBER_FORMATS
from syno.model.replacements import Kind, KnownKind

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


def imported_by_rules() -> dict[Path, set[str]]:
    """The modules of Syno that each file of the workflow imports."""
    line = re.compile(r"^\s*(?:from|import) (syno[\w.]*)", re.MULTILINE)
    files = [ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")]
    return {file: set(line.findall(file.read_text(encoding="utf-8"))) for file in files}


def test_rules_import_only_the_layer_of_the_workflow_and_what_is_below() -> None:
    found = set().union(*imported_by_rules().values())
    assert "syno.stages.workflow.run" in found
    assert [name for name in sorted(found) if name.split(".")[1] in ("paper", "cli", "plot", "notebook")] == []


# Names of the paper's experiments and stages below `paper`. Origins of numbers are values in stored tables.
OF_THE_PAPER = {"artifact", "join", "ablate", "ablations", "headlines", "joined.json"}
NAMED_BELOW = {"run/measurement.py": {"artifact"}}


def test_no_room_below_the_paper_names_its_experiments() -> None:
    named = dict[str, set[str]]()
    for name, tree in trees().items():
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if not name.startswith("paper/") and (found := texts & OF_THE_PAPER):
            named[name] = found
    assert named == NAMED_BELOW


REGISTRIES = {"syno/__init__.py", "syno/data/__init__.py"}  # of public names, which are imported when they are used


def test_only_two_registries_import_modules_of_syno_by_name() -> None:
    """Such an import hides a circle from the linter."""
    by_name = re.compile(r"""(?:import_module|__import__)\(f?["']syno\b""")
    found = {str(path.relative_to(ROOT)) for path in MODULES if by_name.search(path.read_text(encoding="utf-8"))}
    assert found - REGISTRIES == set()


LIGHT = [
    "syno",
    "syno.algebra",
    "syno.ir.library",
    "syno.ir.drawing",
    "syno.lower.choose",
    "syno.lower.loops",
    "syno.lower.tvm",
    "syno.measure.compilers",
    "syno.measure.tuning",
    "syno.cli",
]


def test_importing_a_light_module_loads_no_framework() -> None:
    """One process imports them one after the other, and says after each which frameworks are there."""
    code = f"""
import sys
from importlib import import_module
for module in {LIGHT}:
    import_module(module)
    print(module, *(name for name in {HEAVY} if name in sys.modules))
"""
    assert run(code).splitlines() == LIGHT


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
    docstrings = {name: ast.get_docstring(tree) for name, tree in trees().items()}
    assert [name for name, text in docstrings.items() if not (text or "").split("\n")[0].endswith((".", "!", "?", ":"))] == []


def test_every_module_has_a_name_that_says_what_it_holds() -> None:
    assert {path.stem for path in MODULES} & {"utils", "util", "helpers", "manager", "common", "misc"} == set()


def test_no_module_is_cut_in_parts_by_comments() -> None:
    """A part with a title of its own is a module, a class or a function."""
    texts = {named(path): path.read_text(encoding="utf-8") for path in MODULES}
    assert [name for name, text in texts.items() if re.search(r"^# ?[-=]{3,}", text, re.MULTILINE)] == []


def test_there_are_modules() -> None:
    assert {"syno", "syno.algebra.size", "syno.ir.graph", "syno.lower.interpreter"} <= set(map(named, MODULES))


def test_the_page_on_architecture_names_every_room_from_the_top() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"\|  (\w+) +\S.*\|$", page, re.MULTILINE)
    assert ["__main__", *drawn] == layers
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(drawn)


# Other names with "_" that are split: of settings, of the paper's operators and of folders of the published artifact.
SPLIT_ELSEWHERE = {"config/groups.py", "paper/figures/bars.py", "paper/figures/mixture.py", "paper/artifact/operators.py"}
ENDING = re.compile(rf"_({'|'.join(NUMBER_FORMATS)})$")
BEGINNING = re.compile(rf"^({'|'.join((*get_args(Kind), 'narrower', *get_args(KnownKind)))})_(?![A-Za-z])")


def readings(tree: ast.Module) -> set[str]:
    """The places that split a name at "_", or have the beginning or the end of a network's name in a text."""
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            separator = node.args[0]
            if (
                node.func.attr.endswith(("split", "partition"))
                and isinstance(separator, ast.Constant)
                and separator.value == "_"
            ):
                found.add("split")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            found |= {pattern.pattern for pattern in (ENDING, BEGINNING) if pattern.search(node.value)}
    return found


def test_names_of_networks_are_read_in_one_file() -> None:
    names = {"model/networks.py", "model/replacements.py"}  # the second one makes them
    found = {name: readings(tree) for name, tree in trees().items()}
    assert all(found[name] for name in names)  # what is looked for is there
    assert {name for name, places in found.items() if "split" in places} == SPLIT_ELSEWHERE
    assert not [name for name, places in found.items() if places - {"split"} and name not in names]


SENTENCES = re.compile(
    r"times as fast|\bloses\b|\bmisses by\b|\bbeats\b|slower than the original|none is faster than the original|best of all"
)
WORDED_ELSEWHERE = {  # the paper's own numbers apart
    "base/interval.py": "the one function that words a speedup, which rooms below `run` call, too",
    "report/layer_tables.py": "the label of an axis, and the heading of a column",
    "report/result_figures.py": "labels of axes, and a caption",
    "report/trade_off.py": "the label of an axis",
    "search/goal.py": "errors about the settings of a goal",
    "space/state_graph.py": "an error about operators that a distance does not reach",
}


def texts(tree: ast.Module) -> list[str]:
    """The texts of a module that are no docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return [node.value for node in constants if isinstance(node.value, str)]


def test_sentences_about_a_run_are_in_one_file() -> None:
    found = {
        name for name, tree in trees().items() if not name.startswith("paper/") and any(map(SENTENCES.search, texts(tree)))
    }
    assert found == {"run/story.py", *WORDED_ELSEWHERE}


WITH_PANDAS = {
    "plot.py", "notebook/layer_times.py", "notebook/speed_up.py", "notebook/study.py", "notebook/training.py",  # for users
    "report/parallel_axes.py",  # draws a table of `plot`
    "run/table.py", "search/storage/records.py", "stages/study.py",  # write and read the tables that leave the house
    "search/policies/earlier.py", "base/identity_walk.py",  # users' tables, as data
    "stages/rivals.py",  # adds rows to tables of several experiments, for the paper
}  # fmt: skip


def imports_pandas(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(module.partition(".")[0] == "pandas" for module in names)


def test_few_modules_import_pandas() -> None:
    """Values of a run are objects; they become tables for other programs."""
    found = set[str]()
    for name, tree in trees().items():
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and imports_pandas(node)]
        if imports:
            blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
            typed = {id(node) for block in blocks for node in ast.walk(block)}
            if any(id(node) not in typed for node in imports):
                found.add(name)
    assert {name for name in found if not name.startswith("paper/")} == WITH_PANDAS

"""Builds the package: copies the workflow into it, and builds the compiled modules if the variable SYNO_COMPILED is 1.

Everything else about the package is in pyproject.toml. `syno run` finds the workflow in `syno/_workflow`
of an installed package.

The modules that draw operators are compiled by mypyc, from the same files that Python runs without it: `make compiled` in a
checkout, `SYNO_COMPILED=1 pip install --no-build-isolation .` for an installation. Both need a C compiler, and the packages
that mypy reads types from: numpy and pydantic. `syno.base.compiled` finds the modules.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
WORK = ROOT / "build" / "compiled"
WORKFLOW = ("Snakefile", "workflow", "envs", "config")  # as in syno/stages/workflow_place.py
GROUP = "syno"  # mypyc puts the code of all modules into one library, and calls it GROUP__mypyc

# Left out are modules with little to gain, whose time is NumPy's, pydantic's classes, and classes that are copied or pickled by
# their fields, which those of mypyc cannot be.
TEXT = """
    algebra/size algebra/terms
    ir/dim ir/relation ir/rewriting ir/structure
    space/branches space/candidates space/facts space/requirements space/sizes space/state space/steps
    space/distance/assignment space/distance/conditions space/distance/cost space/distance/feasibility space/distance/flops
    space/distance/groupings space/distance/joins space/distance/problem space/distance/published space/distance/reading
    space/distance/relaxation space/distance/search space/distance/sources space/distance/sums space/distance/surpluses
    space/rules/forms space/rules/order space/rules/symmetry space/rules/views
"""
MODULES = TEXT.split()
PROPERTY = """\
{indent}@property
{indent}def {name}(self) -> {type}:
{indent}    try:
{indent}        return self._found_{name}
{indent}    except AttributeError:
{indent}        pass
{indent}    found = self._find_{name}()
{indent}    self._found_{name}: {type} = found
{indent}    return found

"""
HASH = """
    def __hash__(self) -> int:
        return id(self)
"""


def compiled() -> ModuleType:
    """Return `syno.base.compiled`, without importing Syno: while it is built, what it imports may not be there."""
    spec = importlib.util.spec_from_file_location("compiled", ROOT / "syno" / "base" / "compiled.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepared(text: str) -> str:
    """Return a module's text in the form in which mypyc compiles it to the same behavior.

    - mypyc computes a `cached_property` at each use: it becomes a property that keeps its value.
    - Classes of mypyc with an order lose the hash by identity: they get it back.
    - Several functions of one name, `_`, become functions of different names; decorators have registered them.
    """
    lines = text.splitlines(keepends=True)
    for edit in sorted(_edits(ast.parse(text), lines), key=lambda edit: -edit[0]):  # from the end, so that places stay right
        place, number, new = edit
        lines[place : place + number] = new
    return "".join(lines)


def _edits(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield what `prepared` changes: the place of a line, how many lines go, and those that come."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "_":
            place = node.lineno - 1
            yield place, 1, [lines[place].replace("def _(", f"def _function_{place}(", 1)]
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
        names = {method.name for method in methods}
        if names & {"__lt__", "__le__"} and not names & {"__eq__", "__hash__"}:
            assert node.end_lineno is not None
            yield node.end_lineno, 0, [HASH]
        for method in methods:
            if [ast.unparse(decorator) for decorator in method.decorator_list] == ["cached_property"]:
                assert method.returns is not None
                place, indent = method.decorator_list[0].lineno - 1, " " * method.col_offset
                kept = PROPERTY.format(indent=indent, name=method.name, type=ast.unparse(method.returns))
                first = lines[method.lineno - 1].replace(f"def {method.name}(", f"def _find_{method.name}(", 1)
                yield place, method.lineno - place, [kept, first]


def extensions() -> list[Extension]:
    """Write the C code of the compiled modules, and return what builds it."""
    from mypyc.build import mypycify

    sources = WORK / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ROOT / "syno", sources / "syno", ignore=shutil.ignore_patterns("__pycache__", "_compiled"))
    files = [f"syno/{module}.py" for module in MODULES]
    for file in files:
        path = sources / file
        path.write_text(prepared(path.read_text(encoding="utf-8")), encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    skipped = ",".join([*settings["overrides"][0]["module"], "pandas.*", "optuna.*"])
    config = f"[mypy]\nignore_missing_imports = True\n[mypy-{skipped}]\nfollow_imports = skip\n"
    (sources / "mypy.ini").write_text(config, encoding="utf-8")
    options = ["--config-file=mypy.ini", f"--cache-dir={WORK / 'mypy'}"]
    notes = io.StringIO()  # of mypyc on slow code, dozens of them
    try:
        with contextlib.chdir(sources), contextlib.redirect_stdout(notes), contextlib.redirect_stderr(notes):
            return mypycify([*options, *files], opt_level="1", debug_level="0", group_name=GROUP, target_dir=str(WORK / "c"))
    except SystemExit:
        print(notes.getvalue(), file=sys.stderr)
        raise


class BuildCompiled(build_ext):
    """Builds the modules into syno/_compiled, and writes the list of what they were made from."""

    def get_ext_fullpath(self, ext_name: str) -> str:
        """Return the file of a module."""
        return str(Path(self.build_lib, "syno", compiled().FOLDER.name, ext_name + EXTENSION_SUFFIXES[0]))

    def run(self) -> None:
        """Build. The list comes last: without it, the modules are not used."""
        sources = compiled().checksums(ROOT / "syno")  # now: what is changed while it is built makes the modules unfit
        self.inplace, self.build_lib = False, str(ROOT) if self.inplace else self.build_lib
        folder = Path(self.get_ext_fullpath("")).parent
        shutil.rmtree(folder, ignore_errors=True)
        self.distribution.ext_modules = extensions()
        self.swig_opts = None  # as it was when the options were made final for the first time
        self.finalize_options()
        super().run()
        modules = {extension.name: Path(self.get_ext_fullpath(extension.name)).name for extension in self.extensions}
        content = {"suffix": EXTENSION_SUFFIXES[0], "sources": sources, "modules": modules}
        (folder / compiled().LIST).write_text(json.dumps(content, indent=1), encoding="utf-8")
        print(f"{len(modules)} compiled modules: {folder}")


class BuildWithWorkflow(build_py):
    """Copies the Snakefile, and the folders that it reads, into the package, unless that is a checkout's own."""

    def run(self) -> None:
        """Build."""
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib, "syno", "_workflow")
        shutil.rmtree(folder, ignore_errors=True)
        for name in WORKFLOW:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                folder.mkdir(parents=True)
                shutil.copy2(source, folder / name)


if __name__ == "__main__":  # setuptools runs this file under that name; tests import it
    if os.environ.get("SYNO_COMPILED") == "1":
        # Only `run` makes the true extensions, which takes long; until then, one says that there will be some.
        commands = {"build_ext": BuildCompiled, "build_py": BuildWithWorkflow}
        setup(ext_modules=[Extension(f"{GROUP}__mypyc", [])], cmdclass=commands)
    else:
        setup(cmdclass={"build_py": BuildWithWorkflow})

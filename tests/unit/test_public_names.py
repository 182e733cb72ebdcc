"""The names of `syno`: what `dir` lists, and that each has an example that is run."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import matplotlib
import pytest

import syno

matplotlib.use("Agg")
ROOT = Path(syno.__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "python.md"]  # test_readme.py runs their examples
EXAMPLES = "\n".join(line for page in PAGES for line in re.findall(r"^(?:>>>|\.\.\.) .*", page.read_text(), re.MULTILINE))


def documented(name: str) -> list[doctest.DocTest]:
    """The examples in the docstring of a name or of its module; those of `plot` are in its functions, too."""
    found, home = getattr(syno, name), syno._HOME[name]
    module = importlib.import_module(getattr(found, "__module__", None) or home)
    parts = {name: found.__doc__, f"module of {name}": module.__doc__}
    if name == "plot":
        parts = {f"plot.{one}": getattr(found, one).__doc__ for one in found.__all__} | {"plot": found.__doc__}
    scope, parser = dict(vars(found if name == "plot" else module)), doctest.DocTestParser()
    return [test for part, text in parts.items() if (test := parser.get_doctest(text or "", scope, part, None, 0)).examples]


def test_dir_lists_the_public_names_and_no_others() -> None:
    assert dir(syno) == sorted(syno.__all__) == sorted(syno._HOME)
    assert dir(syno.plot) == sorted(syno.plot.__all__)
    assert import_module("syno.plot") is syno.plot
    with pytest.raises(AttributeError, match="module 'syno' has no attribute 'spec_of'"):
        _ = syno.spec_of


@pytest.mark.parametrize("name", syno.__all__)
def test_a_public_name_has_a_docstring_with_an_example_that_runs(name: str) -> None:
    assert len(getattr(syno, name).__doc__ or "") > 20
    tests = documented(name)
    report: list[str] = []
    for test in tests:
        assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)
    shown = re.search(rf"(\bsyno\.|import (\w+, )*){name}\b", EXAMPLES)
    assert tests or shown, f"{name} has an example neither in its docstring nor on the pages"


def test_public_names_of_studies_load_neither_torch_nor_matplotlib_before_they_are_used() -> None:
    code = "import sys, syno; dir(syno); syno.sample, syno.Space, syno.paper, syno.POLICIES; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"

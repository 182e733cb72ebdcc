"""The names of `syno`: what `dir` lists, and that each has an entry in the reference and an example that is run."""

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
REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md")))
ENTRY = r"^\.\. (?:auto|py:)\w+:: (?:syno\.)?{}\b"
VALUES = {"DATASETS", "OPERATORS", "POLICIES", "REWARDS"}  # tables, which have no docstrings of their own
PARTS = [f"plot.{name}" for name in syno.plot.__all__]


def examples(name: str) -> list[doctest.DocTest]:
    """The examples in the docstring of a name, or for a value, those below its entry in the reference."""
    found = getattr(syno, name)
    home = found if name == "plot" else importlib.import_module(getattr(found, "__module__", None) or "syno")
    text = found.__doc__ or ""
    if name in VALUES:
        text = "\n".join(block for block in re.findall(r"```pycon\n(.*?)```", REFERENCE, re.DOTALL) if f"syno.{name}" in block)
    test = doctest.DocTestParser().get_doctest(text, dict(vars(home)), name, None, 0)
    shows = any(name.lower() in f"{one.source}{one.want}".lower() for one in test.examples)
    return [test] if shows else []


def test_dir_lists_the_public_names_and_no_others() -> None:
    assert dir(syno) == sorted(syno.__all__)
    assert dir(syno.plot) == sorted(syno.plot.__all__)
    assert import_module("syno.plot") is syno.plot
    with pytest.raises(AttributeError, match="spec_of"):
        _ = syno.spec_of


@pytest.mark.parametrize("name", [*syno.__all__, *PARTS])
def test_a_public_name_has_an_entry_in_the_reference(name: str) -> None:
    assert re.search(ENTRY.format(re.escape(name)), REFERENCE, re.MULTILINE), f"no page of docs/api has an entry for {name}"


@pytest.mark.parametrize("name", syno.__all__)
def test_a_public_name_has_a_docstring_with_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(getattr(syno, name).__doc__ or "") > 20
    tests = examples(name)
    assert tests, f"{name} has no example with it in its docstring"
    report: list[str] = []
    for test in tests:
        assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


def test_public_names_of_studies_load_neither_torch_nor_matplotlib_before_they_are_used() -> None:
    code = "import sys, syno; dir(syno); syno.sample, syno.Space, syno.preset, syno.POLICIES; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"

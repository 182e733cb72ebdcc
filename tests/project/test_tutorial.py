"""The notebook docs/tutorial.ipynb: its cells run one after another, and import no part of Syno."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot as plt

import syno

FILE = Path(syno.__file__).parents[1] / "docs" / "tutorial.ipynb"
CODE = [cell for cell in json.loads(FILE.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
CELLS = ["".join(cell["source"]) for cell in CODE]


def test_the_tutorial_imports_torch_matplotlib_and_syno_alone() -> None:
    nodes = [node for cell in CELLS for node in ast.walk(ast.parse(cell))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names == {"torch", "matplotlib.pyplot", "syno"}


def test_the_tutorial_holds_no_outputs() -> None:
    assert [(cell["outputs"], cell["execution_count"]) for cell in CODE] == [([], None)] * len(CODE)


@pytest.mark.slow
def test_the_cells_of_the_tutorial_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    plt.close("all")  # of tests before
    names: dict[str, Any] = {}
    for cell in CELLS:
        exec(compile(cell, str(FILE), "exec"), names)
    assert len(plt.get_fignums()) == 3  # the front beside the best so far, parallel coordinates, latencies
    plt.close("all")
    study = names["study"]
    assert len(study.trials) == 6 and len(study.front()) >= 1
    assert study.best.metrics["flops"] <= 0.6 * names["original"].flops
    kinds = [type(layer).__name__ for layer in names["changed"]]
    assert kinds.count("Conv2d") == 1  # the first convolution stays
    assert f"class {next(kind for kind in kinds if kind.startswith('Digits'))}(nn.Module)" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []

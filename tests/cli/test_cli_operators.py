"""`syno get`, `syno show` and `syno explain`: one operator, as a module, as text, and the way to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from command_lines import Run, one_line, one_line_at_end

from syno.export import formats as home
from syno.ir.library import OPERATORS
from syno.lower.tvm import to_te_source


class TestGet:
    def test_writes_a_module_that_needs_nothing_of_syno(self, run: Run, folder: Path) -> None:
        text = run("get", "operator_1", "--set", "N=1,C_in=64,C_out=64,H=56").stdout
        assert text.startswith("operator_1.py: equal to the interpreter at 2 sets of sizes")
        code = (
            "import sys; sys.modules['syno'] = None; import torch, operator_1\n"
            "print(tuple(operator_1.Operator1(C_in=64, C_out=64)(torch.zeros(2, 64, 8, 8)).shape))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "(2, 64, 8, 8)", done.stderr

    def test_a_module_that_computes_something_else_is_not_written(
        self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = home.to_source
        monkeypatch.setattr(home, "to_source", lambda *given: original(*given).replace("padding=", "dilation=1, padding="))
        run("get", "conv2d")
        monkeypatch.setattr(home, "to_source", lambda *given: original(*given).replace("return x", "return 2 * x"))
        line = one_line_at_end(run("get", "conv2d", "--output", "wrong.py", code=2))
        assert "differs from its meaning" in line
        assert not (folder / "wrong.py").exists()


def one_line_of_error(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


class TestShow:
    def test_a_known_operator(self, run: Run) -> None:
        text = run("show", "conv2d", "--set", "H=8,C_in=4", "--set", "C_out=2", "--set", "N=1").stdout
        assert text.startswith(str(OPERATORS["conv2d"]()))
        assert "for i0 in range(N):" in text and "4,608" in text and "w1 [2, 4, 3, 3]: 72 parameters" in text

    def test_without_sizes_there_are_no_figures(self, run: Run) -> None:
        assert "FLOPs" not in run("show", "conv2d").stdout

    def test_in_all_layers_of_a_spec(self, run: Run) -> None:
        text = run("show", "operator_1", "--spec", "resnet18").stdout
        assert "The whole model: 158,411,018,240 FLOPs, 7,950,756 parameters." in text
        assert text.count("N=128") == 7

    def test_writes_a_drawing(self, run: Run, folder: Path) -> None:
        run("show", "operator_1", "--drawing", "op.svg")
        assert (folder / "op.svg").read_text(encoding="utf-8").startswith("<svg")
        assert "raise" not in one_line_of_error(run("show", "conv2d", "--drawing", "op.gif", code=2))

    @pytest.mark.parametrize("sizes", [(), ("--set", "N=1,C_in=64,C_out=64,H=8"), ("--spec", "resnet18")])
    def test_tensor_expressions(self, run: Run, sizes: tuple[str, ...]) -> None:
        """Nothing but the code, so that it can go into a file."""
        text = run("show", "operator_1", "--te", *sizes).stdout
        assert text == to_te_source(OPERATORS["operator_1"]())

    def test_a_file_and_its_broken_copy(self, run: Run, folder: Path) -> None:
        text = str(OPERATORS["conv1x1"]())
        (folder / "op.txt").write_text(text, encoding="utf-8")
        assert run("show", "op.txt").stdout.startswith(text)
        (folder / "op.txt").write_text(text.replace("Share", "Shear"), encoding="utf-8")
        line = one_line(run("show", "op.txt", code=2))
        assert "op.txt, line" in line and 'unknown primitive "Shear"' in line

    def test_a_folder_of_the_published_data_is_an_operator(self, run: Run, artifact: Path) -> None:
        found = next(artifact.rglob("graph.dot")).parent
        assert "operator published_" in run("show", str(found)).stdout

    def test_unknown_names_variables_and_values_are_errors(self, run: Run) -> None:
        assert 'Did you mean "conv2d"?' in one_line(run("show", "conv2b", code=2))
        assert "no variable" in one_line(run("show", "conv2d", "--rename", "j=k_1", code=2))
        assert "is not NAME=VALUE" in run("show", "conv2d", "--set", "H", code=2).stderr
        assert "a size is a positive whole number" in run("show", "conv2d", "--set", "H=x", code=2).stderr


class TestExplain:
    def test_explain_lists_the_steps_to_an_operator(self, run: Run) -> None:
        text = run("explain", "operator_1", "--spec", "resnet18").stdout
        assert "operator_1 is in the space resnet18: 10 primitives, at most 12" in text
        for line in (
            "distance 4 of 6 primitives",
            "k_1, k_1: taken in as windows",
            "accepted by C5, C6, C7",
            "158,411,018,240",
        ):
            assert line in text

    def test_explain_names_what_excludes_an_operator(self, run: Run) -> None:
        text = run("explain", "conv2d", "--spec", "resnet18", "--rename", "k=k_1", code=1).stdout
        assert "conv2d is not in the space resnet18" in text and "budget" in text
        assert "rename" in run("explain", "conv2d", "--spec", "resnet18", code=1).stdout

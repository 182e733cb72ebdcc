"""The benchmark programs run, and print what they promise. Their figures are no matter here."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
QUICK = ["--shapes", "8,8,7", "--seconds", "0.01", "--rounds", "2"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`benchmarks/lowering.py` with these arguments, without the published operators."""
    environment = {name: value for name, value in os.environ.items() if name != "SYNO_ARTIFACT"}
    command = [sys.executable, "benchmarks/lowering.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def section(report: str, title: str) -> list[str]:
    """The lines below the heading `title`, without empty ones."""
    after = report.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in after.splitlines() if line]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.delenv("SYNO_ARTIFACT", raising=False)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return SimpleNamespace(**{name: importlib.import_module(name) for name in ("cases", "lowering", "measuring", "tables")})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("benchmark") / "made" / "lowering.md"
    done = run("--operators", "conv1x1,operator_1,pixel_shuffle", *QUICK, "--output", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout == file.read_text(encoding="utf-8") + "\n"
    assert [path.name for path in file.parent.iterdir()] == ["lowering.md"]
    assert "[1/2] conv1x1 8->8 7x7: forward literal/fused" in done.stderr
    return file.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("title", ["Forward", "Forward and backward"])
def test_the_report_has_times_of_every_form_and_their_ratios(report: str, title: str) -> None:
    columns, _, convolution, shuffle = (cells(line) for line in section(report, title))
    assert columns == ["operator", "shape", "literal, ms", "fused, ms", "layer, ms", "literal / fused", "layer / fused"]
    assert convolution[:2] == ["conv1x1", "8->8 7x7"]
    assert all(".." in cell for cell in convolution[2:5])
    assert all(float(cell) > 0 for cell in convolution[5:])
    assert shuffle[1] == "8x32x7x7 -> 8x8x14x14"
    assert [shuffle[4], shuffle[6]] == ["–", "–"]  # no layer to replace


@pytest.mark.slow
def test_the_report_has_costs_and_peak_memory(report: str) -> None:
    columns, _, convolution, _ = (cells(line) for line in section(report, "Costs and peak memory"))
    row = dict(zip(columns, convolution, strict=True))
    output = 8 * 8 * 7 * 7 * 4 / 2**20  # MiB
    assert convolution[2:6] == ["0.025", "0.226", "64", "576"]  # 8*8*7*7 * 8 and 9 times that; weights
    assert output - 1e-3 < float(row["fused, forward, MiB"]) <= float(row["fused, forward and backward, MiB"])


@pytest.mark.slow
def test_the_report_names_what_is_left_out_and_what_is_required(report: str) -> None:
    assert "- Published operators: skipped, as SYNO_ARTIFACT is not set" in report
    assert section(report, "Not measured: sizes that do not fit")[0].startswith("- operator_1 8->8 7x7: size g^-1*C_in is 1/4")
    assert section(report, "Required") == ["- Operator 1 64->64 56x56 at batch 8: not measured in this run"]
    assert section(report, "Slower in the fused form")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operators", "conv2"], 'Did you mean "conv2d"?'),
        (["--shapes", "8,8"], '"8,8" is no shape: give C_in,C_out,H as in "64,64,56"'),
        (["--rounds", "0"], '"0" is no positive number'),
    ],
)
def test_wrong_arguments_end_with_code_2_and_a_message(
    arguments: list[str], message: str, modules: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        modules.lowering.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_forms_that_disagree_are_found(modules: SimpleNamespace) -> None:
    first, second, x = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False), torch.randn(4, 3, requires_grad=True)
    modules.measuring.require_agreement(first, first, x, torch.ones(4, 2))
    with pytest.raises(modules.measuring.DisagreementError, match="disagrees: output by .* allowed is 1e-04"):
        modules.measuring.require_agreement(first, second, x, torch.ones(4, 2))


def test_slower_forms_and_requirements_follow_from_the_times(modules: SimpleNamespace) -> None:
    layer = modules.cases.STAGES[0]
    (operator,) = modules.cases.operators(None, ["operator_1"])
    (case,) = modules.cases.cases(operator, [layer], batch=8, own_layer=True)
    forward, both = modules.measuring.PASSES
    times = {
        ("literal", forward): [60.0, 55.0, 12.0], ("fused", forward): [10.0, 10.0, 2.0],
        ("literal", both): [80.0, 90.0, 20.0], ("fused", both): [100.0, 100.0, 10.0],
    }  # fmt: skip
    results = [modules.measuring.Result(case, times_ms=times)]
    assert modules.tables.requirement(results, 8) == [
        "- Operator 1 64->64 56x56 (operator_1): literal/fused forward 6.00 (required 5), "
        "forward and backward 0.900 (required 3: not met)"
    ]
    assert modules.tables.slower(results) == [
        "- operator_1 64->64 56x56, forward and backward: literal/fused 0.900, slower in 2 of 3 rounds"
    ]

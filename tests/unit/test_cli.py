"""The commands: what they write, how they go on, and what they say when something is wrong."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from click.testing import Result
from small_specs import convolution
from typer.testing import CliRunner

from syno.cli import app
from syno.errors import SpecError
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.lower.tvm import to_te_source
from syno.report.operator_folder import primitives
from syno.report.take_home import module as home
from syno.search.evaluation import CountedCost
from syno.space import Sampler, Space
from syno.space.rules import RULES

Run = Callable[..., Result]
HOLDS = 20  # operators asked for, out of some more


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with the spec of a small space."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(convolution(depth=5).dump(), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, (result.output, result.stderr, result.exception)
        return result

    return call


def one_line(result: Result) -> str:
    """The error: the one line on standard error, and nothing else anywhere."""
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def rows(file: Path) -> list[dict[str, str]]:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")]
    return list(csv.DictReader(lines))


def test_help_names_all_commands(run: Run) -> None:
    text = run("--help").stdout
    for command in (
        "rules",
        "spec",
        "sample",
        "data",
        "search",
        "worker",
        "freeze",
        "select",
        "train",
        "baseline",
        "tune",
        "tables",
        "figure",
        "report",
        "top",
        "show",
        "explain",
        "ablate",
    ):
        assert command in text
        assert "Usage" in run(command, "--help").stdout


def test_runs_as_a_module_without_heavy_imports() -> None:
    code = "import sys, syno.cli; print(*(name for name in ('torch', 'optuna', 'pandas', 'matplotlib') if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []
    shown = subprocess.run([sys.executable, "-m", "syno", "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in shown.stdout


class TestRulesAndSpec:
    def test_rules_lists_every_rule(self, run: Run) -> None:
        shown = run("rules").stdout
        assert {line.split()[0] for line in shown.splitlines() if line[:1].strip()} >= set(RULES)
        assert run("rules", "--markdown").stdout.startswith("| id |")

    def test_spec_prints_what_can_be_read_again(self, run: Run, folder: Path) -> None:
        text = run("spec", "resnet18").stdout
        (folder / "again.yaml").write_text(text, encoding="utf-8")
        assert run("spec", "again.yaml").stdout == text


class TestSample:
    def test_writes_a_file_for_each_operator_and_a_table(self, run: Run, folder: Path) -> None:
        result = run("sample", "small.yaml", "-n", str(HOLDS), "--output", "found")
        assert f"{HOLDS} operators in found" in result.stdout
        space = Space(convolution(depth=5))
        table = rows(folder / "found" / "operators.csv")
        assert len(table) == HOLDS == len({row["fingerprint"] for row in table})
        for row in table:
            operator = parse((folder / "found" / row["file"]).read_text(encoding="utf-8"))
            assert (operator.id, space.fingerprint(operator)) == (row["id"], row["fingerprint"])
            assert primitives(operator) == int(row["primitives"]) <= 5
            assert round(space.completion.cost(operator).flops) == int(row["flops"])

    def test_the_seed_decides(self, run: Run, folder: Path) -> None:
        for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
            run("sample", "small.yaml", "-n", "5", "--seed", seed, "--output", name)
        names = [sorted(file.name for file in (folder / name).iterdir()) for name in "abc"]
        assert names[0] == names[1] != names[2]

    def test_goes_on_and_draws_nothing_again(self, run: Run, folder: Path) -> None:
        run("sample", "small.yaml", "-n", "5", "--output", "found")
        before = {file: file.stat().st_mtime_ns for file in (folder / "found").glob("*.txt")}
        run("sample", "small.yaml", "-n", "12", "--output", "found")
        assert len(rows(folder / "found" / "operators.csv")) == 12
        assert {file: file.stat().st_mtime_ns for file in before} == before

    def test_goes_on_after_an_interruption(self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        draw, left = Sampler.draw, [9]

        def interrupted(sampler: Sampler) -> object:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return draw(sampler)

        with monkeypatch.context() as patch:
            patch.setattr(Sampler, "draw", interrupted)
            stopped = run("sample", "small.yaml", "-n", str(HOLDS), "--output", "found", code=130)
        count = len(rows(folder / "found" / "operators.csv"))
        assert 0 < count < HOLDS
        assert f"stopped: {count} of {HOLDS} operators are in found; the same command goes on" in stopped.stderr
        run("sample", "small.yaml", "-n", str(HOLDS), "--output", "found")
        assert len(rows(folder / "found" / "operators.csv")) == HOLDS == len(list((folder / "found").glob("*.txt")))

    def test_a_table_that_was_not_written_is_made_anew(self, run: Run, folder: Path) -> None:
        run("sample", "small.yaml", "-n", "6", "--output", "found")
        table = folder / "found" / "operators.csv"
        text = table.read_text(encoding="utf-8")
        table.unlink()
        run("sample", "small.yaml", "-n", "6", "--output", "found")
        assert sorted(table.read_text(encoding="utf-8").splitlines()) == sorted(text.splitlines())

    def test_stops_when_nothing_is_left(self, run: Run) -> None:
        result = run("sample", "small.yaml", "-n", "100000", "--depth", "4", "--by", "all")
        assert "the space holds no more" in result.stdout and "results/samples/convolution" in result.stdout

    def test_without_distance_finds_some_too(self, run: Run, folder: Path) -> None:
        run("sample", "small.yaml", "-n", "3", "--depth", "4", "--without-distance", "--output", "blind")
        assert len(rows(folder / "blind" / "operators.csv")) == 3

    def test_a_folder_of_another_spec_is_left_alone(self, run: Run) -> None:
        run("sample", "small.yaml", "-n", "2", "--output", "found")
        line = one_line(run("sample", "small.yaml", "-n", "3", "--depth", "4", "--output", "found", code=2))
        assert "found holds operators of another spec" in line and "--output" in line

    def test_an_empty_space_ends_at_once_with_what_to_change(self, run: Run, folder: Path) -> None:
        line = one_line(run("sample", "small.yaml", "--depth", "1", code=2))
        assert 'the space "convolution" holds no operator of at most 1 primitives; raise depth to ' in line
        tight = convolution(budget={"most_flops": 10})
        (folder / "tight.yaml").write_text(tight.dump(), encoding="utf-8")
        assert "raise most_flops, which is 10" in one_line_at_end(run("sample", "tight.yaml", code=2))
        (folder / "no_weights.yaml").write_text(convolution(occurrences={"tensors": 1}).dump(), encoding="utf-8")
        assert "raise occurrences: tensors, which is 1" in one_line(run("sample", "no_weights.yaml", code=2))

    def test_progress_has_rate_valid_walks_and_rejections(self, run: Run) -> None:
        lines = run("sample", "small.yaml", "-n", "5", "--output", "found").stderr.splitlines()
        assert lines[-1].startswith("sample convolution: 5/5, ") and "% valid" in lines[-1] and "rejected by " in lines[-1]


class TestGet:
    def test_writes_a_module_that_needs_nothing_of_syno(self, run: Run, folder: Path) -> None:
        text = run("get", "operator_1", "--set", "N=1,C_in=64,C_out=64,H=56").stdout
        assert text.startswith("operator_1.py: equal to the interpreter at 2 sets of sizes")
        code = (
            "import sys; sys.modules['syno'] = None; import torch, operator_1\n"
            "print(tuple(operator_1.Operator1(C_in=64, C_out=64, H=8)(torch.zeros(2, 64, 8, 8)).shape))"
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

    def test_a_published_folder(self, run: Run, artifact: Path) -> None:
        found = next(artifact.rglob("graph.dot")).parent
        assert "operator published_" in run("show", str(found)).stdout

    def test_names_that_mean_nothing(self, run: Run) -> None:
        assert 'Did you mean "conv2d"?' in one_line(run("show", "conv2b", code=2))
        assert "no variable" in one_line(run("show", "conv2d", "--rename", "j=k_1", code=2))
        assert "is not NAME=VALUE" in run("show", "conv2d", "--set", "H", code=2).stderr
        assert "a size is a positive whole number" in run("show", "conv2d", "--set", "H=x", code=2).stderr


def one_line_of_error(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


class TestExplain:
    def test_the_way_to_an_operator(self, run: Run) -> None:
        text = run("explain", "operator_1", "--spec", "resnet18").stdout
        assert "operator_1 is in the space resnet18: 10 primitives, at most 12" in text
        for line in (
            "distance 4 of 6 primitives",
            "k_1, k_1: taken in as windows",
            "accepted by C5, C6, C7",
            "158,411,018,240",
        ):
            assert line in text

    def test_what_excludes_it(self, run: Run) -> None:
        text = run("explain", "conv2d", "--spec", "resnet18", "--rename", "k=k_1", code=1).stdout
        assert "conv2d is not in the space resnet18" in text and "budget" in text
        assert "rename" in run("explain", "conv2d", "--spec", "resnet18", code=1).stdout


class TestErrors:
    def test_are_one_line(self, run: Run) -> None:
        assert "presets are: resnet18" in one_line(run("sample", "resnet1", code=2))

    def test_debug_shows_where(self, folder: Path) -> None:
        result = CliRunner().invoke(app, ["--debug", "sample", "resnet1"])
        assert isinstance(result.exception, SpecError)

    def test_a_place_that_cannot_be_written(self, run: Run, folder: Path) -> None:
        (folder / "taken").write_text("", encoding="utf-8")
        assert "cannot be written" in one_line_at_end(run("sample", "small.yaml", "-n", "1", "--output", "taken/here", code=2))

    def test_an_option_that_is_none(self, run: Run) -> None:
        assert "neither kind nor all" in run("sample", "small.yaml", "--by", "size", code=2).stderr


def one_line_at_end(result: Result) -> str:
    return result.stderr.splitlines()[-1]


SEARCH = """
spec: small.yaml
original: {flops: 20000, parameters: 1600}
policy: {name: random}
study: {n_trials: 8}
"""


class TestSearch:
    def test_writes_trials_and_the_best(self, run: Run, folder: Path) -> None:
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        text = run("search", "quick.yaml", "--best", "2").stdout
        assert "8 trials (8 complete) in results/quick/trials.parquet" in text
        table = pandas.read_parquet(folder / "results/quick/trials.parquet")
        stored = {file.stem: parse(file.read_text(encoding="utf-8")) for file in (folder / "results/quick/operators").iterdir()}
        assert len(stored) == 8
        for number, operator in zip(table["number"], table["operator"], strict=True):
            key = parse(operator).id[:12]
            assert stored[key].id == parse(operator).id and stored[key].name == f"quick_{number}"
        best = max(range(8), key=lambda place: (table["reward"][place], -place))
        assert text.splitlines()[2].split()[1] == f"quick_{best}"
        assert run("search", "quick.yaml", "--best", "2").stdout == text  # all is done already

    def test_goes_on_after_an_interruption(self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        count, left = CountedCost.__call__, [4]

        def interrupted(self: CountedCost, *arguments: object) -> object:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return count(self, *arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(CountedCost, "__call__", interrupted)
            assert "the same command goes on" in run("search", "quick.yaml", code=130).stderr
        assert "9 trials (8 complete, 1 interrupted)" in run("search", "quick.yaml").stdout

    def test_two_workers_share_it(self, run: Run, folder: Path) -> None:
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        assert "8 complete" in run("search", "quick.yaml", "--workers", "2").stdout

    def test_an_empty_space(self, run: Run, folder: Path) -> None:
        (folder / "quick.yaml").write_text(
            SEARCH.replace("spec: small.yaml", "spec: {preset: small.yaml, depth: 1}"), encoding="utf-8"
        )
        assert "raise depth to" in one_line(run("search", "quick.yaml", code=2))


class TestAblate:
    def test_canonical(self, run: Run, folder: Path) -> None:
        arguments = ("--samples", "30", "--complete", "3", "--depth", "4", "--output", "out")
        text = run("ablate", "canonical", "small.yaml", *arguments).stdout
        assert "| primitives |" in text and "measured on" in text
        assert next(iter(rows(folder / "out/canonical.csv")))["graphs"] == "30"
        for name in ("canonical.svg", "canonical.png", "canonical-complete.csv"):
            assert (folder / "out" / name).stat().st_size > 100

    def test_distance(self, run: Run, folder: Path) -> None:
        arguments = ("--trials", "30", "--seconds", "0.5", "--depth", "4")
        text = run("ablate", "distance", "small.yaml", *arguments).stdout
        assert "| with distance |" in text
        out = folder / "results/ablation/convolution"
        assert (out / "distance.csv").read_text(encoding="utf-8").startswith("# command: syno")
        assert (out / "distance.svg").exists() and (out / "distance.png").exists()

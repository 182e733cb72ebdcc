"""Published data that is not whole, or none: what is wrong is listed, and the rest goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_artifact import LOSSES, MEASURED, PATHS, TOLD, meta
from typer.testing import CliRunner

from syno.base.errors import DataError, ParseError
from syno.cli import app
from syno.paper.artifact.files import read_latency, read_losses
from syno.paper.artifact.places import LANGUAGE_LOG
from syno.paper.artifact.reading import read
from syno.paper.numbers import A100, MOBILE_CPU

GOOD = "vision/a100/good-kernels-imagenet/resnet18/07000_97000"


def problems(data: Path) -> list[str]:
    return [str(problem) for problem in read(data).problems]


def test_a_missing_machine_is_one_problem_and_the_rest_goes_on(data: Path) -> None:
    shutil.rmtree(data / "vision" / "a100")
    contents = read(data)
    (problem,) = map(str, contents.problems)
    assert problem.startswith("vision/a100: missing, and with it ") and problem.endswith(" of the files expected there")
    assert {one.device for one in contents.measurements if one.metric == "latency"} >= {MOBILE_CPU}
    assert A100 not in {one.device for one in contents.measurements}


def test_missing_files_are_listed(data: Path) -> None:
    (data / LANGUAGE_LOG).unlink()
    (data / GOOD / "perf/inductor-cuda/torchvision/resnet18-N=1.txt").unlink()
    shutil.rmtree(data / "vision/mdev/good-kernels-imagenet/densenet121/07500_123/perf/llvm")
    assert problems(data) == [
        "gpt2/baseline/gpt_orig_losses.log: missing",
        f"{GOOD}/perf/inductor-cuda/torchvision/resnet18-N=1.txt: missing",
        "vision/mdev/good-kernels-imagenet/densenet121/07500_123/perf/llvm: missing",
    ]


def test_an_operator_that_only_one_machine_has_is_missing_on_the_other(data: Path) -> None:
    shutil.rmtree(data / GOOD)
    assert problems(data) == [f"{GOOD}: missing"]
    assert len(read(data).operators) == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("perf/cuda/torchvision/resnet18-N=1/benchmark_results.csv", "model,x\n", "holds no latency: no row latency_mean"),
        ("perf/cuda/torchvision/resnet18-N=1/benchmark_results.csv", "latency_mean,nan\n", "holds no latency: nan ms"),
        ("perf/inductor-cuda/torchvision/resnet18-N=1.txt", "", "holds no latency: could not convert string to float: ''"),
        ("perf/inductor-cuda/torchvision/resnet18-N=1.txt", "-3", "holds no latency: -3 ms"),
        ("perf/inductor-cuda/torchvision/resnet18-N=1.txt", b"\xff\xfe\x00", "is no text"),
        ("meta.json", "version https://git-lfs.github.com/spec/v1", "cannot be read as JSON: Expecting value"),
        ("meta.json", '{"accuracy": 1}', 'no entry "path".'),
    ],
)
def test_a_damaged_file_is_listed_and_the_rest_goes_on(data: Path, file: str, content: str | bytes, problem: str) -> None:
    (data / GOOD / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    contents = read(data)
    (found,) = map(str, contents.problems)
    assert found.startswith(f"{GOOD}/{file}: {problem}")
    assert len(contents.measurements) > MEASURED + TOLD - 5


def test_a_damaged_drawing_costs_the_graph_alone(data: Path) -> None:
    for file in data.rglob("graph.dot"):
        file.write_text("digraph {", encoding="utf-8")
    contents = read(data)
    assert [problem.place.rpartition("/")[2] for problem in contents.problems] == ["graph.dot"] * 2
    assert all(str(data) not in problem.what for problem in contents.problems)
    assert contents.operators[0].graph is None and contents.operators[0].name == "published_07800_1780"
    assert len(contents.measurements) == MEASURED + TOLD


def test_machines_that_disagree_are_told(data: Path) -> None:
    meta(data / GOOD, PATHS["good"], 0.5, flops=1)
    first = f"{GOOD.replace('a100', 'mdev')}/meta.json"
    assert problems(data) == [
        f"{GOOD}/meta.json: accuracy 0.5 of operator_1, but {first} has 0.7, which is kept",
        f"{GOOD}/meta.json: flops 1 of operator_1, but {first} has 9000, which is kept",
    ]


def test_a_log_of_less_than_half_an_hour_gives_no_loss(data: Path) -> None:
    (data / LANGUAGE_LOG).write_text(str(LOSSES[:100]), encoding="utf-8")
    contents = read(data)
    assert [one.origin for one in contents.measurements if one.metric == "loss" and one.operator == "original"] == ["paper"]
    assert len(contents.losses) == 100


@pytest.mark.parametrize("content", ["[(1.0, ", "[1, 2]", "[]", "{}", "[('a', 'b')]"])
def test_a_damaged_log(content: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(content, encoding="utf-8")
    with pytest.raises(ParseError, match=r"holds no (list of pairs|step)"):
        read_losses(tmp_path / "log")


def test_a_latency_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="cannot be read"):
        read_latency(tmp_path / "absent.txt")


# ---- what is none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("absent", "absent is not there; give a checkout of the paper's artifact, or the data folder in it"),
        ("file", "file is no folder; give a checkout"),
        ("empty", "empty is empty; give a checkout"),
        ("other", "other holds no artifact: neither vision nor gpt2 is in it or in its data; give a checkout"),
        ("hollow", "hollow has the folders of the paper's artifact, but no measurement in them: copy it again, whole"),
    ],
)
def test_folders_that_are_no_artifact_are_one_message(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for folder in ("empty", "other/src", "hollow/vision/mdev"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(DataError):
        read(Path(given))
    for command in ("import", "figures"):
        result = CliRunner().invoke(app, ["artifact", command, given, "--output", "out"])
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


def test_the_command_tells_what_there_is_and_what_is_not(data: Path, tmp_path: Path) -> None:
    shutil.rmtree(data / "vision" / "a100")
    (data / LANGUAGE_LOG).unlink()
    result = CliRunner().invoke(app, ["artifact", "import", str(data), "--output", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "measurements and 7 operators, 1 of them with their graph" in result.stdout
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("warning: not whole: gpt2/baseline/gpt_orig_losses.log: missing, and 1 more; ")
    listed = json.loads((tmp_path / "out" / "artifact.json").read_text(encoding="utf-8"))["problems"]
    assert [problem["place"] for problem in listed] == ["gpt2/baseline/gpt_orig_losses.log", "vision/a100"]

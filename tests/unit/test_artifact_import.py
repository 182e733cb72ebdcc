"""Importing published data: small artifacts made here, whole and damaged, and the authors' where it is at hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas
import pytest
from small_artifact import LOSSES, PATHS, meta, write_artifact
from typer.testing import CliRunner

from syno.cli import app
from syno.errors import DataError, ParseError
from syno.evaluate.artifact.files import read_latency, read_losses
from syno.evaluate.artifact.operators import Folder, _names  # what it does with odd names
from syno.evaluate.artifact.places import A100, LANGUAGE_LOG, MOBILE_CPU, TARGETS
from syno.evaluate.artifact.reading import WRONG_GUARD, Contents, read
from syno.evaluate.measurement import Measurement, Measurements
from syno.ir.library import OPERATORS
from syno.stages.artifact import ImportRecord, import_artifact
from syno.stages.store import OperatorStore

MEASURED, TOLD = 431, 15  # in a whole small artifact; in the paper
GOOD = "vision/a100/good-kernels-imagenet/resnet18/07000_97000"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    return write_artifact(tmp_path_factory.mktemp("whole") / "data")


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "data"))


@pytest.fixture(scope="module")
def contents(whole: Path) -> Contents:
    return read(whole)


def only(contents: Contents, **fields: object) -> Measurement:
    (found,) = (one for one in contents.measurements if all(getattr(one, name) == value for name, value in fields.items()))
    return found


def problems(data: Path) -> list[str]:
    return [str(problem) for problem in read(data).problems]


# ---- a whole one ------------------------------------------------------------------------------------------------


def test_all_of_it_is_read(contents: Contents) -> None:
    assert contents.problems == ()
    assert [one.origin for one in contents.measurements] == ["artifact"] * MEASURED + ["paper"] * TOLD
    assert len(contents.losses) == len(LOSSES)


def test_a_checkout_is_found_by_its_data_folder(whole: Path) -> None:
    assert len(read(whole.parent).measurements) == MEASURED + TOLD


def test_latencies_are_in_milliseconds_whatever_the_compiler_wrote(contents: Contents) -> None:
    for number, target in enumerate(TARGETS, 1):
        found = only(
            contents, operator="original", model="densenet121", layer=None, device=target.device, compiler=target.compiler,
            metric="latency",
        )  # fmt: skip
        assert found.value == pytest.approx(60.0 * number)
        assert found.repeats == (3 if target.compiler == "tvm" else None)
        assert (found.data, found.unit, found.note) == ("imagenet", "ms", "")


def test_a_layer_is_measured_by_itself(contents: Contents) -> None:
    place = {"layer": "conv_io64", "device": A100, "compiler": "inductor", "metric": "latency"}
    found = {one.operator: one.value for one in contents.measurements if all(getattr(one, k) == v for k, v in place.items())}
    sequences = {f"nas_pte_sequence_{number}": 36.0 * (1 + number) for number in (1, 2, 3)}
    assert found == pytest.approx({"original": 36.0, "operator_1": 9.0, **sequences})


def test_published_code_of_tvm_is_marked(contents: Contents) -> None:
    marked = {(one.compiler, one.operator) for one in contents.measurements if one.note == WRONG_GUARD}
    assert {compiler for compiler, _ in marked} == {"tvm"}
    assert {"operator_1", "published_07801"} < {name for _, name in marked}
    assert not {"original", "int8", "stacked_convolution", "nas_pte_sequence_1"} & {name for _, name in marked}


def test_the_second_training_counts_and_zero_is_not_measured(contents: Contents) -> None:
    again = only(contents, operator="operator_1", data="cifar100", metric="accuracy")
    assert again.value == 0.799 and again.model == "resnet18" and again.source.endswith("/07800_17800/meta_new.json")
    assert only(contents, operator="operator_1", data="cifar100", metric="flops").value == 1500
    poor = [one.data for one in contents.measurements if one.operator == "published_07802" and one.metric == "accuracy"]
    assert poor == ["cifar100"]


def test_costs_that_are_repeated_from_the_search_are_not_taken_for_those_on_imagenet(contents: Contents) -> None:
    costs = {(one.model, one.data) for one in contents.measurements if one.metric == "flops"}
    assert ("resnet34", "imagenet") in costs and ("resnet18", "imagenet") in costs
    assert ("densenet121", "cifar100") in costs and ("densenet121", "imagenet") not in costs


def test_the_log_gives_the_loss_that_a_search_would_have_seen(contents: Contents) -> None:
    found = only(contents, operator="original", metric="loss", origin="artifact")
    assert found.value == pytest.approx(6.0 - 0.001 * (721 + 900) / 2)  # of 901 steps in 30 minutes, the last fifth
    assert only(contents, operator="original", metric="loss", origin="paper").value == 5.8516


def test_folders_with_one_path_are_one_operator(contents: Contents) -> None:
    names = {operator.path: operator.name for operator in contents.operators}
    assert len(names) == len(contents.operators) == 7
    assert [names[path] for path in PATHS.values()] == ["operator_1", "published_07801", "published_07802"]
    first = contents.operators[0]
    assert len(first.places) == 6  # of two machines: the search's, and two networks on ImageNet
    assert first.id == OPERATORS["operator_1"]().id
    assert [operator.graph is None for operator in contents.operators] == [False] + [True] * 6


def test_what_an_import_writes(whole: Path, tmp_path: Path) -> None:
    record = import_artifact(whole, tmp_path / "out")
    assert ImportRecord.read(tmp_path / "out" / "artifact.json") == record
    assert record.measurements == MEASURED + TOLD
    assert len(Measurements.read(tmp_path / "out" / "measurements.json").measurements) == record.measurements
    table = pandas.read_parquet(tmp_path / "out" / "tables" / "measurements.parquet")
    assert len(table) == len(pandas.read_csv(tmp_path / "out" / "tables" / "measurements.csv")) == record.measurements
    (key,) = (one.key for one in record.operators if one.key is not None)
    stored = OperatorStore(tmp_path / "out").get(key)
    assert stored.name == "operator_1" and stored.id == OPERATORS["operator_1"]().id
    assert dict(stored.defaults) == {"g": 32, "k_1": 3, "s": 2}
    losses = pandas.read_parquet(tmp_path / "out" / "tables" / "losses.parquet")
    assert losses["step"].tolist() == list(range(100, 1300, 100))
    assert losses["loss"][0] == pytest.approx(6.0 - 0.001 * 49.5) and losses["minutes"][0] == pytest.approx(99 * 2 / 60)


def test_the_same_data_gives_the_same_files(whole: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        import_artifact(whole, tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) == 7
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


# ---- one that is not whole --------------------------------------------------------------------------------------


def test_a_missing_machine_is_one_problem_and_the_rest_goes_on(data: Path) -> None:
    shutil.rmtree(data / "vision" / "a100")
    contents = read(data)
    (problem,) = map(str, contents.problems)
    assert problem.startswith("vision/a100: missing, and with it ") and problem.endswith(" of the files expected there")
    assert {one.device for one in contents.measurements if one.metric == "latency"} >= {MOBILE_CPU}
    assert A100 not in {one.device for one in contents.measurements}


def test_what_is_missing_is_listed(data: Path) -> None:
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


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("perf/cuda/torchvision/resnet18-N=1/benchmark_results.csv", "model,x\n", "holds no latency: no row latency_mean"),
        ("perf/cuda/torchvision/resnet18-N=1/benchmark_results.csv", "latency_mean,nan\n", "holds no latency: nan ms"),
        ("perf/inductor-cuda/torchvision/resnet18-N=1.txt", "", "holds no latency: could not convert string to float: ''"),
        ("perf/inductor-cuda/torchvision/resnet18-N=1.txt", "-3", "holds no latency: -3 ms"),
        ("perf/inductor-cuda/torchvision/resnet18-N=1.txt", b"\xff\xfe\x00", "is no text"),
        ("meta.json", "version https://git-lfs.github.com/spec/v1", "the file: Invalid JSON"),
        ("meta.json", '{"accuracy": 1}', "path: Field required"),
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


def test_names_are_as_long_as_they_must_be() -> None:
    from pathlib import PurePosixPath

    from syno.evaluate.artifact.files import Meta

    places = ("a/07_12345", "b/08_11119", "c/08_22229", "d/09_11118", "e/09_11119", "f/10_1", "g/10_1")
    homes = {
        place: Folder(PurePosixPath(place), PurePosixPath(place), "", place[0], "cifar100", Meta(path=place))
        for place in places
    }
    assert [name.removeprefix("published_") for name in _names(homes).values()] == [
        "07", "08_1111", "08_2222", "09_11118", "09_11119", "10_1_f", "10_1_g",
    ]  # fmt: skip


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
def test_what_is_no_artifact_is_one_message(given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ---- the authors' -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authors(artifact: Path) -> Contents:
    return read(artifact)


def test_the_authors_data_is_whole_but_for_one_latency(authors: Contents) -> None:
    known = ("efficientnet_v2_s/08064", "gpt_orig_losses.log")  # the log is absent in some checkouts
    assert all(any(name in problem.place for name in known) for problem in authors.problems), authors.problems
    assert sum(one.metric == "latency" for one in authors.measurements) == 665


def test_the_authors_operators(authors: Contents) -> None:
    assert len(authors.operators) == len({one.name for one in authors.operators}) == 34
    assert sum(one.graph is not None for one in authors.operators) == 18
    assert {"operator_1", "operator_2", "gpt2_projection"} < {one.name for one in authors.operators}

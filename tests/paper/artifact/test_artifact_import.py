"""Importing published data: a small artifact made here. That of the authors: tests/paper/test_paper_numbers.py."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from small_artifact import LOSSES, MEASURED, PATHS, TOLD

from syno.ir.library import OPERATORS
from syno.paper.artifact.imported import ImportRecord
from syno.paper.artifact.operators import Folder, _names  # what it does with odd names
from syno.paper.artifact.places import TARGETS
from syno.paper.artifact.reading import Contents, read
from syno.paper.numbers import A100, INDUCTOR, WRONG_GUARD
from syno.paper.stages.artifact import import_artifact
from syno.run.measurement import Measurement, Measurements
from syno.stages.store import OperatorStore


def only(contents: Contents, **fields: object) -> Measurement:
    (found,) = (one for one in contents.measurements if all(getattr(one, name) == value for name, value in fields.items()))
    return found


def test_every_file_of_the_artifact_is_read(contents: Contents) -> None:
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
    place = {"layer": "conv_io64", "device": A100, "compiler": INDUCTOR, "metric": "latency"}
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


def test_an_import_writes_its_files(whole: Path, tmp_path: Path) -> None:
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


def test_names_are_as_long_as_they_must_be() -> None:
    from pathlib import PurePosixPath

    from syno.paper.artifact.files import Meta

    places = ("a/07_12345", "b/08_11119", "c/08_22229", "d/09_11118", "e/09_11119", "f/10_1", "g/10_1")
    homes = {
        place: Folder(PurePosixPath(place), PurePosixPath(place), "", place[0], "cifar100", Meta(path=place))
        for place in places
    }
    assert [name.removeprefix("published_") for name in _names(homes).values()] == [
        "07", "08_1111", "08_2222", "09_11118", "09_11119", "10_1_f", "10_1_g",
    ]  # fmt: skip

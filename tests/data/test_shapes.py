"""A data set without pictures, for latencies: the stages that look at data, and what happens if it is trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from syno.base.errors import DataError, SpecError
from syno.config import Experiment
from syno.data import DATASETS
from syno.stages.data import DataRecord, data_text, look, prepare
from syno.stages.select import select
from syno.stages.store import OperatorStore


def taking(*operators: object) -> Experiment:
    workload = {"model": "resnet8", "data": "shapes", "data_settings": {"classes": 7, "size": 16}, "training": {"batch": 2}}
    return Experiment(name="one", workload=workload, select={"operators": operators}, train={"seeds": []})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_shape_is_all_that_is_looked_at() -> None:
    experiment = taking("conv2d")
    record = prepare(experiment)
    assert DataRecord.read(experiment.folder / "data.json") == record
    assert (record.classes, record.image_shape, record.train_images, record.test_images) == (7, (3, 16, 16), 0, 0)
    text = data_text(experiment, record)
    assert text.startswith("shapes: no pictures of 3 x 16 x 16, 7 classes; resnet8: ")
    assert text.endswith("nothing is trained, so no step of training was tried\n")


@pytest.mark.parametrize(
    ("size", "shape"), [(16, (3, 16, 16)), ([8, 32], (3, 8, 32)), ([100], (3, 100)), ([4, 5, 6], (3, 4, 5, 6))]
)
def test_shapes_need_not_be_square(size: object, shape: tuple[int, ...]) -> None:
    assert DATASETS["shapes"](size=size).image_shape == shape


@pytest.mark.parametrize("size", [[], [0, 8], True, [1, 2, 3, 4]])
def test_sizes_that_are_no_shape_are_errors(size: object) -> None:
    with pytest.raises(SpecError, match="size"):
        DATASETS["shapes"](size=size)


@pytest.mark.slow
@pytest.mark.parametrize(("speedup", "advice"), [(1.5, "and the goal is 1.5\n"), (3, "the goal is 3: replace more layers ")])
def test_with_a_goal_it_says_how_fast_the_network_can_become(speedup: float, advice: str) -> None:
    workload = {"model": "resnet8", "data_settings": {"preset": "micro"}}
    experiment = Experiment(name="one", workload=workload, goal={"speedup": speedup, "lose_at_most": 0.1})
    record = look(experiment).model_copy(update={"time_shares": {"blocks.0.conv1": 0.3, "blocks.2.conv2": 0.2, "stem": 0.5}})
    text = data_text(experiment, record)
    assert "speed: the layers to replace take about 50% of the time" in text and advice in text
    assert "would be 2 times as fast" in text


def test_the_data_command_names_what_the_flops_do_not_count() -> None:
    experiment = taking("conv2d")
    record = look(experiment)
    assert "do not count" not in data_text(experiment, record)
    text = data_text(experiment, record.model_copy(update={"not_counted": ("aten.mv in head",), "attention_flops": 1e6}))
    assert "the FLOPs do not count aten.mv in head, of which nothing is known\n" in text
    assert "the FLOPs do not count products of activations, as in attention, which are 1,000,000 more\n" in text


def test_other_shapes_have_another_hash_and_there_is_nothing_to_train_on() -> None:
    data = DATASETS["shapes"](size=32)
    assert data.hash != DATASETS["shapes"](size=64).hash == DATASETS["shapes"](size=64).hash
    for batches in (data.test_batches, lambda batch: data.train_batches(batch, seed=0)):
        with pytest.raises(DataError, match='"shapes" has no pictures to'):
            batches(1)
    with pytest.raises(SpecError, match="sizes: .*classes, size, channels"):
        DATASETS["shapes"](sizes=3)


def test_named_operators_are_selected_in_their_order_with_their_variables_renamed() -> None:
    experiment = taking({"operator": "operator_1", "rename": {"k_1": "k"}}, "conv2d")
    chosen = select(experiment)
    assert [(one.name, one.metrics, one.trial) for one in chosen] == [("operator_1", {}, None), ("conv2d", {}, None)]
    assert "k" in OperatorStore(experiment.folder).get(chosen[0].key).variables
    with pytest.raises(SpecError, match="conv2d is the same operator"):
        select(taking("conv2d", "conv2d"))

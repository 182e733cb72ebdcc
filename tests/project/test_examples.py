"""The networks, data sets and files of the examples."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from quick_cases import quick_cases
from small_examples import EXAMPLES, FOLDER, fields_of, small_example
from torch import nn
from typer.testing import CliRunner

from syno.cli import app
from syno.config.files import load_experiment
from syno.model.layer_table import layer_rows
from syno.space.space import Space
from syno.space.state_graph import check_not_empty

WITH_WEIGHTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)
SOME = quick_cases(EXAMPLES, "own_cnn".__eq__)
REPLACED = {"keyword_spotting": 5, "mixer": 13, "mobilenet": 11, "own_cnn": 8, "resnet_biases": 8, "segmentation": 8}


def test_there_are_six_examples() -> None:
    assert list(REPLACED) == EXAMPLES


@pytest.mark.parametrize("name", SOME)
def test_the_layer_table_of_an_example_is_that_of_its_page(name: str) -> None:
    network = small_example(name).network
    model = network.model()
    rows = layer_rows(model, network.example, network.settings.layers)
    wanted = {layer for layer, module in model.named_modules() if isinstance(module, WITH_WEIGHTS)}
    assert {row.name for row in rows} == wanted and len(rows) == len(wanted)
    stay = [row for row in rows if row.reason]
    assert len(rows) - len(stay) == REPLACED[name] and stay
    assert sum(row.flops for row in rows) == network.original.flops / len(network.example)


def test_own_cnn_has_eleven_layers_with_weights() -> None:
    network = small_example("own_cnn").network
    rows = layer_rows(network.model(), network.example, network.settings.layers)
    assert len(rows) == 11
    reasons = {row.name: row.reason for row in rows if row.reason}
    assert reasons == {
        "stem": "it is the first convolution; add stem to `layers` to replace it",
        "hidden": "the rule takes no such layer; an experiment of its own takes it, with `layers: linear`",
        "head": "the rule takes no such layer; an experiment of its own takes it, with `layers: head`",
    }
    kinds = {row.kind for row in rows}
    assert {"3x3 convolution, stride 2", "depthwise 3x3 convolution", "1x1 convolution", "linear"} < kinds
    assert sum(row.kind == "3x3 convolution, stride 2" for row in rows) == 2


@pytest.mark.parametrize("name", SOME)
def test_the_space_of_an_example_has_operators(name: str) -> None:
    experiment = load_experiment(FOLDER / name / "experiment.yaml")
    assert experiment.name == name and experiment.searches and experiment.trains
    assert experiment.goal is not None or experiment.relative_budget is not None
    assert experiment.tune.compilers and experiment.train.seeds
    check_not_empty(Space(small_example(name).operator_spec))


@pytest.mark.parametrize("name", SOME)
def test_the_data_of_an_example_is_the_same_each_time(name: str) -> None:
    one, same = small_example(name).network.data, small_example(name).network.data
    assert one is not same and one.hash == same.hash and (one.train_count, one.test_count) == (64, 32)


OWN_DATA = [("keyword_spotting", (1, 2048), ()), ("segmentation", (3, 20, 28), (20, 28))]


@pytest.mark.parametrize(("name", "shape", "positions"), OWN_DATA)
def test_the_data_of_an_example_has_its_shapes_and_all_classes(
    name: str, shape: tuple[int, ...], positions: tuple[int, ...]
) -> None:
    data = small_example(name).network.data
    assert data.image_shape == shape and data.label_shape == positions
    assert set(data.test_labels.unique().tolist()) == set(range(data.classes))
    assert not torch.equal(data.train_images[:32], data.test_images)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_network_of_an_example_is_plain_pytorch(name: str) -> None:
    tree = ast.parse((FOLDER / name / "network.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in imported} == {"torch"}


@pytest.mark.parametrize("name", SOME)
def test_the_page_of_an_example_shows_its_commands_and_results(name: str) -> None:
    page = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    assert f"syno run examples/{name}/experiment.yaml --cores 2" in page
    layers = small_example(name).network
    for row in layer_rows(layers.model(), layers.example, layers.settings.layers):
        if row.reason:
            assert f"stays: {row.reason}" in page
    assert re.search(rf"^\| {name}_\d+ ", page, re.MULTILINE), "a row of the table of results"
    assert f"({name}/)" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["the clone", "its folder"])
def test_the_modules_beside_the_file_are_found(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another example's modules have the same names, and were imported before."""
    assert small_example("segmentation").network.data.name == "scenes"
    folder = FOLDER / "keyword_spotting"
    monkeypatch.chdir(folder.parents[1] if place == "the clone" else folder)
    file = "experiment.yaml" if place == "its folder" else "examples/keyword_spotting/experiment.yaml"
    done = CliRunner().invoke(app, ["data", file, "--output", str(tmp_path / "data.json")])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("data:load: 1536 + 512 samples of 1 x 2048, 8 classes; network:make: 5 layers to replace")


def test_files_name_only_modules_that_are_there() -> None:
    for name in EXAMPLES:
        workload = fields_of(name)["workload"]
        own = [workload[key].partition(":")[0] for key in ("model", "data") if ":" in workload[key]]
        assert own and all((FOLDER / name / f"{module}.py").is_file() for module in own)

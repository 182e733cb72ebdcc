"""Published operators: folders written here, and the authors' artifact where it is at hand."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from published_dot import published_dot

from syno.base.errors import ParseError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.rewriting import normal_form
from syno.ir.text import parse
from syno.lower.interpreter import interpret, shapes
from syno.paper.artifact.files import META
from syno.paper.artifact.published_operator import (
    GRAPH_FILE,
    LAYERS_FILE,
    PublishedOperator,
    distinct,
    read_artifact,
    read_folder,
)

# ---- folders written here ---------------------------------------------------------------------------------------


def pooled_convolution() -> PGraph:
    build = Builder("N, C_in, C_out, H; k, s")
    n, o, h = build.output("N, C_out, s^-1*H")
    i, c, part = build.reduce("k, C_in, s")
    i, c = build.contract(outer=[o], inner=[i, c])
    return build.finish([n, c, build.unfold(build.split(h, part), i)])


def layer(**values: int) -> dict[str, Any]:
    coefficients = {"g": 32, "k": 3, "s": 2}
    listed = [", ".join(f"{name}: {value}" for name, value in group.items()) for group in (values, coefficients)]
    consts = {"primary": list(values.values()), "coefficient": list(coefficients.values())}
    return {
        "constsDescription": f"Primary: {{ {listed[0]} }}, Coefficient {{ {listed[1]} }}",
        "consts": {"unpadded": consts, "padded": consts},
        "flops": 1000 * values["H"],
    }


def contents() -> tuple[dict[str, Any], dict[str, Any]]:
    """What meta.json and metadata.json hold in a good folder."""
    meta = {"path": "01_02_03", "accuracy": 0.75, "flops": 10, "params": 20, "loss": 0}
    layers = {
        "inputsShapes": ["[N, C_in, H]", "[k, C_in, C_out]"],
        "outputShape": "[N, C_out, s^-1*H]",
        "validPlaceholders": [layer(C_in=8, C_out=8, H=6, N=2), layer(C_in=8, C_out=16, H=4, N=2)],
        "validPlaceholdersIndices": [0, 1, 1],
    }
    return meta, layers


def write_folder(folder: Path, meta: object, layers: object, dot: str | None = None) -> Path:
    (folder / LAYERS_FILE).parent.mkdir(parents=True)
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")
    (folder / LAYERS_FILE).write_text(json.dumps(layers), encoding="utf-8")
    (folder / GRAPH_FILE).write_text(dot or published_dot(pooled_convolution(), 0), encoding="utf-8")
    return folder


def test_a_folder_is_read_as_an_operator(tmp_path):
    folder = write_folder(tmp_path / "resnet" / "07500_123", *contents())
    operator = read_folder(folder)
    assert operator.folder == folder
    assert operator.path == "01_02_03"
    assert operator.graph.id == normal_form(pooled_convolution()).id
    assert operator.graph.name == "published_07500"
    assert str(operator.variables) == "C_in, C_out, H, N; g, k, s"
    assert dict(operator.valuations[1]) == {"C_in": 8, "C_out": 16, "H": 4, "N": 2, "k": 3, "s": 2}  # g does not occur
    assert operator.layer_flops == (6000, 4000)
    assert operator.placeholders == (0, 1, 1)
    assert [[str(size) for size in shape] for shape in operator.weight_shapes] == [["k", "C_in", "C_out"]]
    assert (operator.accuracy, operator.loss, operator.flops, operator.params) == (0.75, 0, 10, 20)
    assert repr(operator).startswith("<published resnet/07500_123: <pGraph published_07500")


def test_loss_may_be_left_out(tmp_path):
    meta, layers = contents()
    del meta["loss"]
    assert read_folder(write_folder(tmp_path / "folder", meta, layers)).loss is None


def test_an_artifact_is_read_in_order(tmp_path):
    meta, layers = contents()
    for name in ("b/07_1", "a/08_2", "a/07_1"):
        write_folder(tmp_path / name, {**meta, "path": name[-1]}, layers)
    operators = read_artifact(tmp_path)
    assert [operator.folder.relative_to(tmp_path).as_posix() for operator in operators] == ["a/07_1", "a/08_2", "b/07_1"]
    assert distinct(operators) == operators[:2]


@pytest.mark.parametrize("name", ["", "absent"])
def test_a_folder_that_is_no_artifact_is_an_error(name, tmp_path):
    with pytest.raises(ParseError, match=r"no graph.dot"):
        read_artifact(tmp_path / name)


@pytest.mark.parametrize("name", [GRAPH_FILE, META, LAYERS_FILE])
@pytest.mark.parametrize("broken", [None, b"{ no json, no dot", b"\xff\xfe\x00", b"[]", b"digraph {}"])
def test_a_file_that_is_missing_or_broken(name, broken, tmp_path):
    folder = write_folder(tmp_path / "folder", *contents())
    (folder / name).unlink()
    if broken is not None:
        (folder / name).write_bytes(broken)
    with pytest.raises(ParseError) as caught:
        read_folder(folder)
    assert str(caught.value).startswith(f"{folder / name}: ")


ABSENT = object()
KERNEL = (LAYERS_FILE, "validPlaceholders", 1)
DESCRIBED = (*KERNEL, "constsDescription")
DESCRIPTION = "Primary: {{ C_in: 8, C_out: 16, H: 4, {}: 2 }}, Coefficient {{ g: 32, k: 3, s: 2 }}"
PRIMARY = (*KERNEL, "consts", "unpadded", "primary")

# Where an entry is, what it is replaced by, and what the message must hold.
BROKEN: dict[str, tuple[tuple[Any, ...], Any, list[str]]] = {
    "no path": ((META, "path"), ABSENT, ['no entry "path"']),
    "misspelt path": ((META,), {"paht": "01"}, ['no entry "path". Did you mean "paht"?']),
    "empty path": ((META, "path"), "", ['"path": String should have at least 1 character; it has ""']),
    "path a number": ((META, "path"), 1, ['"path": Input should be a valid string; it has 1']),
    "accuracy a text": ((META, "accuracy"), "good", ['"accuracy": Input should be a valid number; it has "good"']),
    "flops no integer": ((META, "flops"), 1.5, ['"flops": Input should be a valid integer; it has 1.5']),
    "params true": ((META, "params"), True, ['"params": Input should be a valid integer; it has true']),
    "loss null": ((META, "loss"), None, ['"loss": Input should be a valid number; it has null']),
    "no layers": ((LAYERS_FILE, "validPlaceholders"), [], ['"validPlaceholders": Tuple should have at least 1 item']),
    "layer no object": (KERNEL, 7, ['validPlaceholders: "1": Input should be an object; it has 7']),
    "no description": (DESCRIBED, ABSENT, ['validPlaceholders: 1: no entry "constsDescription"']),
    "odd description": (DESCRIBED, "H: 4", ['"constsDescription" is "H: 4"', "Primary: { H: 56 }, Coefficient { k: 3 }"]),
    "other variables": (DESCRIBED, DESCRIPTION.format("W"), ['"C_in, C_out, H, W; g, k, s", those of the first layer']),
    "keyword": (DESCRIBED, DESCRIPTION.format("if"), ['"if"']),
    "no values": (PRIMARY[:-1], ABSENT, ['consts: no entry "unpadded"']),
    "too few values": (PRIMARY, [8, 16, 4], ['3 values in "primary"', "C_in: 8, C_out: 16, H: 4, N: 2"]),
    "a value of 0": (PRIMARY, [8, 16, 0, 2], ["H = 0", "positive integer"]),
    "a value a text": (PRIMARY, [8, 16, "4", 2], ['primary: "2": Input should be a valid integer; it has "4"']),
    "no such layer": ((LAYERS_FILE, "validPlaceholdersIndices"), [0, 2], ["has 2; there are 2"]),
    "no shapes": ((LAYERS_FILE, "inputsShapes"), ABSENT, ['no entry "inputsShapes"']),
    "shape of no sizes": ((LAYERS_FILE, "outputShape"), "[N, 7, H]", ['7" is not a size']),
    "other weight": ((LAYERS_FILE, "inputsShapes", 1), "[C_out, k]", ["its shapes are", "graph.dot beside it draws"]),
    "one weight more": ((LAYERS_FILE, "inputsShapes"), ["[N, C_in, H]"], ["its shapes are"]),
    "other input": ((LAYERS_FILE, "inputsShapes", 0), "[N, H, C_in]", ["its shapes are"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_an_entry_that_is_missing_or_wrong(name, tmp_path):
    (file, *place), value, wanted = BROKEN[name]
    files: Any = dict(zip((META, LAYERS_FILE), contents(), strict=True))
    holder, last = files, file
    for step in place:
        holder, last = holder[last], step
    if value is ABSENT:
        del holder[last]
    else:
        holder[last] = value
    folder = write_folder(tmp_path / "folder", *files.values())
    with pytest.raises(ParseError) as caught:
        read_folder(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / file}")
    assert [part for part in wanted if part not in message] == [], message


# ---- the artifact -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(artifact) -> list[PublishedOperator]:
    return read_artifact(artifact)


def in_folder(published: list[PublishedOperator], folder: str) -> PublishedOperator:
    return next(operator for operator in published if operator.folder.name == folder)


def test_the_artifact_holds_18_operators_in_81_folders(published):
    assert len(published) == 81
    assert len(distinct(published)) == 18


def test_equal_paths_are_equal_operators(published):
    ids = defaultdict(set)
    for operator in published:
        ids[operator.path].add(operator.graph.id)
    assert all(len(same) == 1 for same in ids.values())
    assert len(set.union(*ids.values())) == len(ids) == 18


def test_published_operators_as_text(published):
    for operator in distinct(published):
        assert parse(str(operator.graph)).id == operator.graph.id


def test_weights_have_the_published_axes(published):
    for operator in published:
        assert [sorted(shape) for shape in operator.weight_shapes] == [
            sorted(dim.size for dim in weight) for weight in operator.graph.weights
        ]


def test_every_layer_has_whole_sizes(published):
    for operator in published:
        assert set(operator.placeholders) == set(range(len(operator.valuations)))
        assert len(operator.layer_flops) == len(operator.valuations)
        for valuation in operator.valuations:
            operator.graph.valuation(valuation)


def test_figures_of_operator_1(published):
    operator = in_folder(published, "07889_15252107013978896537")
    assert operator.accuracy == pytest.approx(0.78135, abs=1e-5)
    assert operator.params == 6566436
    assert operator.layer_flops[0] == 7501531328  # the figure in its metadata
    assert len(operator.placeholders) == 16
    assert operator.valuations[0] == {"C_in": 64, "C_out": 64, "H": 56, "N": 128, "g": 32, "k_1": 3, "s": 2}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("operator_1", "07889_15252107013978896537"),
        ("operator_2", "07754_18091915762600937904"),
        ("gpt2_projection", "05675_10993262425417760381"),
    ],
)
def test_the_library_holds_what_was_published(name, folder, published):
    assert normal_form(OPERATORS[name]()).id == in_folder(published, folder).graph.id


def random_tensors(graph: PGraph, values: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    input_shape, weight_shapes, _ = shapes(graph, graph.variables.valuation(values))
    return [rng.integers(-9, 10, shape) for shape in (input_shape, *weight_shapes)]


def test_operator_1_computes_its_formula(published):
    graph = in_folder(published, "07889_15252107013978896537").graph
    values = {"N": 2, "C_in": 6, "C_out": 12, "H": 4, "g": 2, "k_1": 3, "s": 3}
    x, w1, w2 = random_tensors(graph, values)  # w1[o, q, i, j, p], w2[(q, c), j, p]
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    grouped = windows.reshape(2, 2, 3, 4, 4, 3, 3)
    expected = np.einsum("nqchvij,oqijp,qcjp->nohv", grouped, w1, w2.reshape(2, 3, 3, 2))
    assert np.array_equal(interpret(graph, values, x, w1, w2), expected)


def test_the_gpt2_operator_computes_its_formula(published):
    graph = in_folder(published, "05675_10993262425417760381").graph
    values = {"N": 1, "seq_len": 2, "H_in": 96, "k_1": 2, "t": 3}
    x, w = random_tensors(graph, values)  # w[o // A, o % B, r]
    expected = np.zeros((1, 2, 288), dtype=int)
    a, b, half = 96 // (8 * 3), 96 // (16 * 3), 48
    for o in range(288):
        start = (o % a) // b * half
        expected[:, :, o] = x[:, :, start : start + half] @ w[o // a, (o % a) % b]
    assert np.array_equal(interpret(graph, values, x, w), expected)

"""ONNX files become PyTorch modules whose outputs are ONNX Runtime's: each operator by itself, and whole networks."""

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import syno
from syno.base.errors import DataError, SpecError
from syno.model.backbones import BACKBONES
from syno.model.onnx.operators import TRANSLATIONS
from syno.train.settings import WorkloadSettings
from syno.train.workload import Workload

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
helper = onnx.helper

GENERATOR = np.random.default_rng(0)
FLOAT, INTEGER, BOOLEAN = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def written(
    folder: Path, nodes: Sequence[Any], inputs: dict[str, tuple[int, Sequence[Any]]], weights: dict[str, np.ndarray],
    outputs: Sequence[str] = ("y",), opset: int = 20,
) -> Path:  # fmt: skip
    """Write a file of these nodes."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)  # the checker asks for types of outputs
    for one in model.graph.output:
        if not one.type.tensor_type.elem_type:
            one.type.tensor_type.elem_type = FLOAT
    file = folder / "net.onnx"
    onnx.save(model, str(file))
    return file


def check(file: Path, *batches: int, **examples: Any) -> nn.Module:
    """Read a file and compare its outputs with ONNX Runtime's at batch sizes at which the reader has not run it."""
    network = syno.read_onnx(file, **examples)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for batch in batches:
        tensors = {}
        for one in session.get_inputs():
            shape = [batch if isinstance(size, str) else size for size in one.shape]
            values = {"tensor(float)": torch.randn(shape), "tensor(int64)": torch.randint(0, 3, shape)}
            tensors[one.name] = values.get(one.type, torch.rand(shape) > 0.5)
        with torch.no_grad():
            outputs = network(*tensors.values())
        expected = session.run(None, {name: tensor.numpy() for name, tensor in tensors.items()})
        for own, other in zip(outputs if isinstance(outputs, tuple) else (outputs,), expected, strict=True):
            assert list(own.shape) == list(other.shape)
            torch.testing.assert_close(own, torch.tensor(other), rtol=1e-5, atol=1e-5)
    return network


N4 = ["N", 4]
POSITION = "coordinate_transformation_mode"
PICTURE = ["N", 4, 9, 10]
# operator -> cases (shape of the input, constant inputs by place, attributes), and the opset where it is not 20
CASES: list[tuple[str, list[Any], dict[int, np.ndarray], dict[str, Any], int]] = [
    *(
        (name, N4, {}, {}, 20)
        for name in (
            "Abs", "Atan", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish",
            "Neg", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Softsign", "Tanh",
            "LogSoftmax", "Celu", "Identity", "ThresholdedRelu", "Cosh", "Sinh", "Tan",
        )
    ),
    ("Gelu", N4, {}, {"approximate": "tanh"}, 20),
    ("HardSigmoid", N4, {}, {"alpha": 1 / 6, "beta": 0.5}, 20),
    ("Softmax", ["N", 3, 4], {}, {"axis": 1}, 20),
    ("Softmax", ["N", 3, 4], {}, {"axis": 1}, 11),
    ("Clip", N4, {1: np.float32(0), 2: np.float32(6)}, {}, 20),
    ("Clip", N4, {2: np.float32(0.5)}, {}, 20),
    ("Clip", N4, {}, {"min": -0.5, "max": 0.5}, 6),
    ("PRelu", PICTURE, {1: floats(4, 1, 1)}, {}, 20),
    ("PRelu", PICTURE, {1: floats(10)}, {}, 20),
    ("Add", PICTURE, {1: floats(4, 1, 1)}, {}, 20),
    ("Add", PICTURE, {0: floats(10)}, {}, 20),
    ("Sub", N4, {0: np.float32(1)}, {}, 20),
    ("Mul", N4, {1: np.float32(3)}, {}, 20),
    ("Div", N4, {0: np.float32(2)}, {}, 20),
    ("Pow", N4, {1: np.float32(2)}, {}, 20),
    ("Max", N4, {0: np.float32(0.1)}, {}, 20),
    ("Min", N4, {1: floats(4)}, {}, 20),
    ("Mean", N4, {1: floats(4)}, {}, 20),
    ("Sum", N4, {1: floats(4), 2: np.float32(2)}, {}, 20),
    ("Greater", N4, {1: np.float32(0.2)}, {}, 20),
    ("LessOrEqual", N4, {0: np.float32(0.2)}, {}, 20),
    ("Cast", N4, {}, {"to": INTEGER}, 20),
    ("Conv", PICTURE, {1: floats(6, 2, 3, 3), 2: floats(6)}, {"group": 2, "strides": [2, 1], "pads": [1, 1, 1, 1]}, 20),
    ("Conv", PICTURE, {1: floats(6, 4, 3, 2)}, {"dilations": [2, 1], "pads": [0, 1, 1, 0]}, 20),
    ("Conv", PICTURE, {1: floats(6, 4, 3, 3)}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, 20),
    ("Conv", PICTURE, {1: floats(6, 4, 4, 4)}, {"auto_pad": "SAME_LOWER"}, 20),
    ("Conv", PICTURE, {1: floats(6, 4, 3, 3)}, {"auto_pad": "VALID"}, 20),
    ("Conv", ["N", 4, 9], {1: floats(6, 4, 3)}, {}, 20),
    ("Conv", ["N", 2, 5, 6, 7], {1: floats(3, 2, 2, 3, 2)}, {}, 20),
    ("ConvTranspose", PICTURE, {1: floats(4, 3, 3, 3), 2: floats(3)}, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 20),
    ("ConvTranspose", PICTURE, {1: floats(4, 3, 3, 3)}, {"strides": [2, 2], "output_padding": [1, 0], "group": 1}, 20),
    ("ConvTranspose", PICTURE, {1: floats(4, 3, 3, 3)}, {"strides": [2, 2], "pads": [1, 0, 0, 1]}, 20),
    ("ConvTranspose", PICTURE, {1: floats(4, 1, 3, 3)}, {"strides": [2, 2], "auto_pad": "SAME_UPPER", "group": 4}, 20),
    ("Gemm", N4, {1: floats(4, 3), 2: floats(3)}, {}, 20),
    ("Gemm", N4, {1: floats(3, 4), 2: floats(3)}, {"transB": 1, "alpha": 0.5, "beta": 2.0}, 20),
    ("MatMul", ["N", 5, 4], {1: floats(4, 3)}, {}, 20),
    ("MatMul", ["N", 5, 4], {0: floats(3, 5)}, {}, 20),
    ("Einsum", ["N", 5, 4], {1: floats(4, 3)}, {"equation": "nij,jk->nki"}, 20),
    ("BatchNormalization", PICTURE, {1: floats(4), 2: floats(4), 3: floats(4), 4: floats(4) ** 2}, {"epsilon": 1e-3}, 20),
    ("BatchNormalization", N4, {1: floats(4), 2: floats(4), 3: floats(4), 4: floats(4) ** 2}, {}, 20),
    ("InstanceNormalization", PICTURE, {1: floats(4), 2: floats(4)}, {}, 20),
    ("LayerNormalization", ["N", 3, 4], {1: floats(4), 2: floats(4)}, {}, 20),
    ("LayerNormalization", ["N", 3, 4], {1: floats(4)}, {"axis": 1}, 20),
    ("GroupNormalization", PICTURE, {1: floats(4), 2: floats(4)}, {"num_groups": 2}, 21),
    ("LRN", PICTURE, {}, {"size": 3}, 20),
    ("MaxPool", PICTURE, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 20),
    ("MaxPool", PICTURE, {}, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]}, 20),
    ("MaxPool", PICTURE, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "dilations": [1, 2]}, 20),
    ("AveragePool", PICTURE, {}, {"kernel_shape": [2, 2], "strides": [2, 2]}, 20),
    ("AveragePool", PICTURE, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 20),
    ("AveragePool", PICTURE, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, 20),
    ("AveragePool", PICTURE, {}, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, 20),
    ("GlobalAveragePool", PICTURE, {}, {}, 20),
    ("GlobalMaxPool", PICTURE, {}, {}, 20),
    ("Pad", PICTURE, {1: integers(0, 0, 1, 2, 0, 0, 0, 3), 2: np.float32(1.5)}, {}, 20),
    ("Pad", PICTURE, {1: integers(0, 1, 0, 0, 0, 2, 0, 0)}, {}, 20),
    ("Pad", PICTURE, {1: integers(0, 0, 1, 2, 0, 0, 0, 3)}, {"mode": "reflect"}, 20),
    ("Pad", PICTURE, {1: integers(0, 0, 1, 0, 0, 0, 0, 3)}, {"mode": "edge"}, 20),
    ("Pad", PICTURE, {}, {"pads": [0, 0, 1, 2, 0, 0, 0, 3]}, 10),
    ("Resize", PICTURE, {2: np.float32([1, 1, 2, 3])}, {}, 20),
    ("Resize", PICTURE, {2: np.float32([1, 1, 0.6, 1.7])}, {POSITION: "asymmetric", "nearest_mode": "floor"}, 20),
    ("Resize", PICTURE, {2: np.float32([1, 1, 2, 3])}, {"mode": "linear"}, 20),
    ("Resize", PICTURE, {2: np.float32([1, 1, 2, 3])}, {"mode": "cubic"}, 20),
    ("Resize", PICTURE, {2: np.float32([1, 1, 2, 2])}, {"mode": "linear", POSITION: "align_corners"}, 20),
    ("Upsample", PICTURE, {1: np.float32([1, 1, 2, 2])}, {}, 9),
    ("Concat", PICTURE, {}, {"axis": 1}, 20),
    ("Split", N4, {}, {"axis": 1, "num_outputs": 2}, 20),
    ("Reshape", PICTURE, {1: integers(0, -1)}, {}, 20),
    ("Reshape", PICTURE, {1: integers(-1, 36, 10)}, {}, 20),
    ("Flatten", PICTURE, {}, {}, 20),
    ("Flatten", PICTURE, {}, {"axis": -1}, 20),
    ("Transpose", PICTURE, {}, {"perm": [0, 2, 3, 1]}, 20),
    ("Squeeze", ["N", 1, 3], {1: integers(1)}, {}, 20),
    ("Squeeze", ["N", 1, 3], {}, {}, 20),
    ("Unsqueeze", N4, {1: integers(1, 3)}, {}, 20),
    ("Unsqueeze", N4, {}, {"axes": [0]}, 11),
    ("Expand", ["N", 1, 4], {1: integers(1, 3, 1)}, {}, 20),
    ("Tile", N4, {1: integers(1, 3)}, {}, 20),
    ("Gather", N4, {1: integers(3, 0, -2)}, {"axis": 1}, 20),
    ("Gather", N4, {1: np.int64(2)}, {"axis": 1}, 20),
    ("Gather", N4, {1: integers(1, 2)}, {"axis": 1}, 20),
    ("Slice", PICTURE, {1: integers(1, -2), 2: integers(3, 2**40), 3: integers(1, 3)}, {}, 20),
    ("Slice", PICTURE, {1: integers(-1), 2: integers(-(2**40)), 3: integers(2), 4: integers(-2)}, {}, 20),
    ("Slice", PICTURE, {}, {"starts": [1], "ends": [3], "axes": [1]}, 9),
    ("ReduceMean", PICTURE, {1: integers(2, 3)}, {}, 20),
    ("ReduceMean", PICTURE, {}, {"axes": [1], "keepdims": 0}, 11),
    ("ReduceSum", PICTURE, {1: integers(-1)}, {"keepdims": 0}, 20),
    ("ReduceMax", PICTURE, {1: integers(1)}, {}, 20),
    ("ReduceMin", PICTURE, {1: integers(1)}, {}, 20),
    ("ReduceL1", PICTURE, {1: integers(1)}, {}, 20),
    ("ReduceL2", PICTURE, {1: integers(1)}, {}, 20),
    ("ReduceLogSumExp", PICTURE, {1: integers(1)}, {}, 20),
    ("ReduceSumSquare", PICTURE, {1: integers(1)}, {}, 20),
    ("ReduceProd", PICTURE, {1: integers(1)}, {}, 20),
    ("ArgMax", PICTURE, {}, {"axis": 1}, 20),
    ("ArgMin", PICTURE, {}, {"axis": 2, "keepdims": 0}, 20),
    ("CumSum", N4, {1: np.int64(1)}, {}, 20),
    ("DepthToSpace", PICTURE, {}, {"blocksize": 2}, 20),
    ("DepthToSpace", PICTURE, {}, {"blocksize": 2, "mode": "CRD"}, 20),
    ("SpaceToDepth", ["N", 2, 4, 6], {}, {"blocksize": 2}, 20),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case[0]}" for at, case in enumerate(CASES)])
def test_an_operator_computes_what_onnx_runtime_computes(case: Any, tmp_path: Path) -> None:
    """Each case is a graph of one node, whose other inputs are constants of the file."""
    operator, shape, constants, attributes, opset = case
    names = [f"constant_{at}" if at in constants else "" for at in range(max([0, *constants]) + 1)]
    if all(names):
        names.append("")
    names[names.index("")] = "x"
    count = 2 if operator == "Split" else 1
    node = helper.make_node(operator, names, [f"y{at}" for at in range(count)], **attributes)
    weights = {f"constant_{at}": np.asarray(array) for at, array in constants.items()}
    file = written(tmp_path, [node], {"x": (FLOAT, shape)}, weights, [f"y{at}" for at in range(count)], opset)
    check(file, 5)


def test_every_translation_has_a_case_or_a_test_below() -> None:
    below = {
        "And", "Or", "Xor", "Not", "Where", "Equal", "GreaterOrEqual", "Less", "Mod", "CastLike", "Dropout", "GatherElements",
        "ScatterElements", "Sqrt", "Log", "Reciprocal", "IsNaN", "Acos", "Asin", "LSTM", "GRU", "RNN",
    }  # fmt: skip
    assert set(TRANSLATIONS) == {case[0] for case in CASES} | below


def test_nodes_of_two_tensors_and_of_integers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Less", ["a", "b"], ["less"]),
        helper.make_node("GreaterOrEqual", ["b", "half"], ["large"]),
        helper.make_node("Equal", ["i", "two"], ["equal"]),
        helper.make_node("And", ["less", "large"], ["both"]),
        helper.make_node("Or", ["both", "equal"], ["either"]),
        helper.make_node("Not", ["either"], ["none"]),
        helper.make_node("Xor", ["none", "less"], ["xor"]),
        helper.make_node("Where", ["xor", "a", "half"], ["chosen"]),
        helper.make_node("Mod", ["i", "two"], ["rest"]),
        helper.make_node("Div", ["i", "two"], ["quotient"]),
        helper.make_node("CastLike", ["quotient", "a"], ["cast"]),
        helper.make_node("Dropout", ["cast"], ["kept"]),
        helper.make_node("GatherElements", ["a", "i"], ["gathered"], axis=1),
        helper.make_node("ScatterElements", ["b", "i", "kept"], ["scattered"], axis=0),
        helper.make_node("Abs", ["gathered"], ["positive"]),
        helper.make_node("Sqrt", ["positive"], ["root"]),
        helper.make_node("Log", ["root"], ["log"]),
        helper.make_node("Reciprocal", ["root"], ["inverse"]),
        helper.make_node("IsNaN", ["log"], ["nan"]),
        helper.make_node("Tanh", ["a"], ["small"]),
        helper.make_node("Acos", ["small"], ["acos"]),
        helper.make_node("Asin", ["small"], ["asin"]),
        helper.make_node("Sum", ["chosen", "kept", "log", "inverse", "acos", "asin"], ["y"]),
    ]
    weights = {"half": np.float32(0.5), "two": np.int64(2)}
    inputs = {"a": (FLOAT, [3, 4]), "b": (FLOAT, [3, 4]), "i": (INTEGER, [3, 4])}
    check(written(tmp_path, nodes, inputs, weights, ["y", "rest", "scattered", "nan"]), 1)


@pytest.mark.parametrize(
    ("operator", "gates", "attributes"),
    [
        ("LSTM", 4, {"direction": "bidirectional"}),
        ("GRU", 3, {"linear_before_reset": 1, "direction": "reverse"}),
        ("RNN", 1, {"direction": "forward"}),
    ],
)
def test_recurrent_layers_over_samples_that_begin_with_a_state(
    operator: str, gates: int, attributes: dict[str, Any], tmp_path: Path
) -> None:
    count = 2 if attributes["direction"] == "bidirectional" else 1
    names = ["t", "w", "r", "b", "", *(["h0"] if operator == "RNN" else [])]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Unsqueeze", ["h"], ["h0"], axes=[0]),
        helper.make_node(operator, names, ["y", "last"], hidden_size=3, **attributes),
    ]
    weights = {"w": floats(count, 3 * gates, 4), "r": floats(count, 3 * gates, 3), "b": floats(count, 6 * gates)}
    inputs = {"x": (FLOAT, ["N", 5, 4]), "h": (FLOAT, ["N", 3])}
    check(written(tmp_path, nodes, inputs, weights, ["y", "last"], 11), 3)


def test_sizes_that_are_computed_leave_the_batch_free(tmp_path: Path) -> None:
    """`x.view(x.size(0) * 3, -1)` and `torch.zeros(x.size(0))`, as TorchScript's exporter writes them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Mul", ["batch", "three"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "axis"], ["rows_1"]),
        helper.make_node("Concat", ["rows_1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["batch_1"]),
        helper.make_node("Concat", ["batch_1", "sizes"], ["back"], axis=0),
        helper.make_node("Reshape", ["flat", "back"], ["y"]),
    ]
    weights = {"zero": np.int64(0), "three": np.int64(3), "axis": integers(0), "minus": integers(-1), "sizes": integers(4, 3)}
    network = check(written(tmp_path, nodes, {"x": (FLOAT, ["N", 12])}, weights), 1, 7)
    exported = torch.export.export(network, (torch.randn(4, 12),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert exported.module()(torch.randn(9, 12)).shape == (9, 4, 3)


def test_a_file_for_one_sample_takes_batches_unless_samples_mix(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["flat"]), helper.make_node("Gemm", ["flat", "w"], ["y"])]
    file = written(tmp_path, nodes, {"x": (FLOAT, [1, 3, 4])}, {"shape": integers(1, -1), "w": floats(12, 5)})
    network, x = syno.read_onnx(file), torch.randn(6, 3, 4)
    torch.testing.assert_close(network(x), torch.cat([network(one[None]) for one in x]))
    with pytest.raises(AssertionError, match=r"the input x must be of the shape \[N, 3, 4\]"):
        network(torch.randn(1, 4, 3))
    mixing = [helper.make_node("CumSum", ["x", "axis"], ["y"])]
    network = syno.read_onnx(written(tmp_path, mixing, {"x": (FLOAT, [1, 4])}, {"axis": np.int64(0)}))
    with pytest.raises(AssertionError, match=r"the input x must be of the shape \[1, 4\]"):
        network(torch.randn(2, 4))


def test_tokens_with_an_embedding(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["table", "x"], ["rows"]), helper.make_node("ReduceMean", ["rows", "axis"], ["y"])]
    file = written(tmp_path, nodes, {"x": (INTEGER, ["N", 6])}, {"table": floats(9, 4), "axis": integers(1)})
    assert isinstance(check(file, 3).get_submodule("table"), nn.Embedding)


class _Block(nn.Module):
    """An inverted bottleneck of MobileNetV2."""

    def __init__(self, features: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        hidden = features * factor
        self.is_residual = stride == 1 and features == outputs
        wide = [nn.Conv2d(features, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()] if factor != 1 else []
        self.layers = nn.Sequential(
            *wide,
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


def mobilenet_v2() -> nn.Module:
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    features = 32
    for factor, outputs, count, stride in rows:
        for at in range(count):
            layers.append(_Block(features, outputs, stride if at == 0 else 1, factor))
            features = outputs
    layers += [
        nn.Conv2d(features, 1280, 1, bias=False),
        nn.BatchNorm2d(1280),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_a_network_comes_back(name: str, tmp_path: Path) -> None:
    """What PyTorch wrote is read with the same outputs and numbers of weights; it trains, and is copied and pickled."""
    torch.manual_seed(0)
    model = (mobilenet_v2() if name == "mobilenet_v2" else BACKBONES["resnet18"](classes=10)).eval()
    file, x = tmp_path / "net.onnx", torch.randn(2, 3, 64, 64)
    torch.onnx.export(model, (x,), str(file), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("N")},))
    network = check(file, 1)
    with torch.no_grad():
        torch.testing.assert_close(network(x), model(x), rtol=1e-5, atol=1e-5)
    convolutions = [one for one in model.modules() if isinstance(one, nn.Conv2d)]
    assert [one.weight.shape for one in network.modules() if isinstance(one, nn.Conv2d)] == [
        one.weight.shape for one in convolutions
    ]
    for again in (pickle.loads(pickle.dumps(network)), copy.deepcopy(network)):
        torch.testing.assert_close(again(x), network(x))
    network.train()(x).square().mean().backward()
    assert all(one.grad is not None for one in network.parameters())


def test_an_onnx_file_is_the_network_of_a_workload(tmp_path: Path) -> None:
    """Its layers are found, and an operator in their place is trained with the weights of the others."""
    model, x = BACKBONES["resnet6"](classes=12).eval(), torch.randn(2, 3, 16, 16)
    file = tmp_path / "net.onnx"
    torch.onnx.export(model, (x,), str(file), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("N")},))
    settings = WorkloadSettings(onnx=str(file), data_settings={"preset": "micro"}, training={"epochs": 1})
    assert WorkloadSettings.model_validate(settings.model_dump()) == settings
    workload = Workload.of(settings)
    assert len(workload.layers) == len(Workload.of(WorkloadSettings(model="resnet6", data_settings={"preset": "micro"})).layers)
    torch.testing.assert_close(workload.model()(x), model(x), rtol=1e-5, atol=1e-5)
    assert 0 < workload.train(syno.OPERATORS["conv1x1"]()).score <= 1
    with pytest.raises(ValueError, match="onnx and model are both given; an ONNX file has the network with its weights"):
        WorkloadSettings(onnx="net.onnx", model="resnet8")


@pytest.mark.parametrize(
    ("node", "match"),
    [
        (helper.make_node("NonZero", ["x"], ["y"], name="n0"), r'the operator NonZero is not known to Syno \(node "n0"\)'),
        (helper.make_node("RandomUniformLike", ["x"], ["y"]), "RandomUniformLike which is random"),
        (helper.make_node("GRU", ["x3", "w", "r"], ["y"], hidden_size=3), "the operator GRU with these settings"),
    ],
)
def test_what_is_not_known_is_one_line_with_the_operator(node: Any, match: str, tmp_path: Path) -> None:
    before = helper.make_node("Unsqueeze", ["x", "axis"], ["x3"])
    weights = {"axis": integers(0), "w": floats(1, 9, 4), "r": floats(1, 9, 3)}
    with pytest.raises(SpecError, match=match) as error:
        syno.read_onnx(written(tmp_path, [before, node], {"x": (FLOAT, N4)}, weights))
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no network")
    with pytest.raises(DataError, match=r"text\.onnx cannot be read as ONNX"):
        syno.read_onnx(tmp_path / "text.onnx")
    file = written(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["N", 3, "height"])}, {})
    with pytest.raises(SpecError, match=r'the axis 2 \("height"\) of the input x of .* is free; give its size, as in sizes='):
        syno.read_onnx(file)
    for network in (syno.read_onnx(file, torch.randn(2, 3, 8)), syno.read_onnx(file, sizes={"height": 8})):
        assert network(torch.randn(5, 3, 8)).shape == (5, 3, 8)
    with pytest.raises(SpecError, match=r"takes 1 inputs \(x\), and example_inputs has 2 tensors"):
        syno.read_onnx(file, (torch.randn(2, 3, 8), torch.randn(2)))


def test_a_wrong_translation_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSLATIONS, "Relu", TRANSLATIONS["Abs"])
    with pytest.raises(DataError, match="its output y differs by .* from ONNX Runtime's"):
        syno.read_onnx(written(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, N4)}, {}))

"""Operators as files that other programs run: each holds what it should, and what computes something else is not written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from syno.base.errors import LoweringError, MissingPackageError, UnknownNameError, ValuationError, WrongOutputError
from syno.cli import app
from syno.export import FORMATS, formats
from syno.export import formats as source
from syno.export.formats import equal_to_meaning
from syno.ir.library import OPERATORS
from syno.lower.interpreter import interpret

SIZES = {"C_in": 4, "C_out": 6, "H": 5}
SMALL = {"C_in": 32, "C_out": 32, "H": 6, "g": 4, "s": 2}  # of Operator 1, which has two stages
needs_onnx = pytest.mark.skipif(
    not all(map(find_spec, formats.NEEDS_FOR_ONNX)), reason='ONNX is not installed: pip install "syno-operators[onnx]"'
)
needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason='TVM is not installed: pip install "syno-operators[tvm]"')


class Doubled(nn.Module):  # type: ignore[misc]
    """Computes something else than the module in it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.module(x)


def exports_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    original = formats._exported
    monkeypatch.setattr(
        formats, "_exported", lambda operator, material: original(operator, replace(material, module=Doubled(material.module)))
    )


def meaning(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Of a convolution."""
    tensors = [tensor.detach().double().numpy() for tensor in (x, weight)]
    return torch.from_numpy(interpret(OPERATORS["conv2d"](), {**SIZES, "N": len(x)}, *tensors)).float()


class TestExport:
    def test_a_program_for_any_batch_that_can_be_trained(self, tmp_path: Path) -> None:
        file = tmp_path / "conv2d.pt2"
        how = FORMATS["export"].write(OPERATORS["conv2d"](), file, SIZES)
        assert how.startswith("equal to the interpreter for inputs of 1x4x5x5 and 3x4x10x10: ")
        loaded = torch.export.load(file).module()
        (weight,) = loaded.parameters()
        for batch in (1, 2, 7):
            x = torch.rand(batch, 4, 5, 5, generator=torch.Generator().manual_seed(0))
            torch.testing.assert_close(loaded(x), meaning(x, weight), rtol=1e-4, atol=1e-5)
        assert loaded(torch.ones(2, 4, 8, 8)).shape == (2, 6, 8, 8)
        loaded(torch.ones(2, 4, 5, 5)).sum().backward()
        assert weight.grad is not None and weight.grad.abs().sum() > 0

    @pytest.mark.parametrize(
        ("name", "sizes"),
        [("operator_1", SMALL), ("pixel_shuffle", {"C": 4, "H": 6}), ("gpt2_projection", None), ("matmul", None)],
    )
    def test_operators_of_all_kinds(self, name: str, sizes: dict[str, int] | None, tmp_path: Path) -> None:
        operator = OPERATORS[name]()
        values = sizes or dict.fromkeys(set(operator.variables) - set(operator.variables.defaults), 48)
        assert "equal to the interpreter" in FORMATS["export"].write(operator, tmp_path / "it.pt2", values)

    def test_a_file_with_other_outputs_is_not_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        exports_something_else(monkeypatch)
        with pytest.raises(WrongOutputError, match="exported program of conv2d .*by 1 of"):
            FORMATS["export"].write(OPERATORS["conv2d"](), tmp_path / "wrong.pt2", SIZES)
        assert not list(tmp_path.iterdir())

    def test_a_program_needs_sizes(self, tmp_path: Path) -> None:
        with pytest.raises(ValuationError, match="no value for C_out"):
            FORMATS["export"].write(OPERATORS["conv2d"](), tmp_path / "it.pt2", {"C_in": 4, "H": 6})
        with pytest.raises(ValuationError, match='no variable "C"'):
            FORMATS["export"].write(OPERATORS["conv2d"](), tmp_path / "it.pt2", {**SIZES, "C": 4})

    def test_operators_that_pytorch_cannot_export_are_errors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("\nno such thing\nand more")

        monkeypatch.setattr(torch.export, "export", fails)
        with pytest.raises(LoweringError, match=r"conv2d cannot be exported by PyTorch: no such thing$"):
            FORMATS["export"].write(OPERATORS["conv2d"](), tmp_path / "it.pt2", SIZES)


class TestOnnx:
    @needs_onnx
    def test_a_file_for_any_batch(self, tmp_path: Path) -> None:
        import onnx
        import onnxruntime

        file = tmp_path / "conv2d.onnx"
        assert "3x4x10x10: largest relative difference" in FORMATS["onnx"].write(OPERATORS["conv2d"](), file, SIZES)
        onnx.checker.check_model(str(file))
        (given,) = onnx.load(file).graph.input
        assert [dim.dim_param or dim.dim_value for dim in given.type.tensor_type.shape.dim] == ["N", 4, "H", "H"]
        weights = [torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()) for tensor in onnx.load(file).graph.initializer]
        (weight,) = [tensor for tensor in weights if tensor.dim() == 4]
        x = torch.rand(5, 4, 5, 5)
        (y,) = onnxruntime.InferenceSession(file).run(["y"], {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(y), meaning(x, weight), rtol=1e-4, atol=1e-5)

    @needs_onnx
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "sizes"), [("operator_1", SMALL), ("pixel_shuffle", {"C": 4, "H": 6}), ("gpt2_projection", None)]
    )
    def test_operators_of_all_kinds(self, name: str, sizes: dict[str, int] | None, tmp_path: Path) -> None:
        operator = OPERATORS[name]()
        values = sizes or dict.fromkeys(set(operator.variables) - set(operator.variables.defaults), 48)
        assert "equal to the interpreter" in FORMATS["onnx"].write(operator, tmp_path / "it.onnx", values)

    @pytest.mark.slow
    @needs_onnx
    def test_a_file_with_other_outputs_is_not_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        exports_something_else(monkeypatch)
        with pytest.raises(WrongOutputError, match="the ONNX file of conv2d differs from its meaning"):
            FORMATS["onnx"].write(OPERATORS["conv2d"](), tmp_path / "wrong.onnx", SIZES)
        assert not list(tmp_path.iterdir())

    def test_a_missing_onnx_package_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(formats, "find_spec", lambda name: None if name.startswith("onnx") else find_spec(name))
        with pytest.raises(MissingPackageError, match=r'onnxruntime.*"syno-operators\[onnx\]"'):
            FORMATS["onnx"].write(OPERATORS["conv2d"](), tmp_path / "it.onnx", SIZES)


def test_no_other_format_is_imported_in_place_of_the_module() -> None:
    assert [form.ending for form in FORMATS.values() if form.ending in all_suffixes()] == [".py"]


@needs_tvm
class TestTvm:
    def test_a_library_computes_as_the_operator(self, tmp_path: Path) -> None:
        import tvm

        from syno.measure.tvm.compilation import TvmModule

        file = tmp_path / "conv2d.so"
        how = FORMATS["tvm"].write(OPERATORS["conv2d"](), file, {**SIZES, "N": 2})
        assert how.startswith("equal to the interpreter for inputs of 2x4x5x5: ")
        call = TvmModule(tvm.runtime.load_module(str(file)), "cpu")
        x = torch.rand(2, 4, 5, 5)
        assert call(x).shape == (2, 6, 5, 5)
        torch.testing.assert_close(call(3 * x), 3 * call(x), rtol=1e-4, atol=1e-5)

    def test_a_library_is_for_one_batch(self, tmp_path: Path) -> None:
        with pytest.raises(ValuationError, match="no value for N"):
            FORMATS["tvm"].write(OPERATORS["conv2d"](), tmp_path / "it.so", SIZES)

    def test_a_wrong_library_is_not_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original: Callable[..., Any] = formats.import_network
        monkeypatch.setattr(formats, "import_network", lambda found, *x: original(nn.Sequential(found, nn.ReLU()), *x))
        with pytest.raises(WrongOutputError, match="the library of conv2d differs"):
            FORMATS["tvm"].write(OPERATORS["conv2d"](), tmp_path / "it.so", {**SIZES, "N": 1})
        assert not list(tmp_path.iterdir())

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["conv2d", "operator_1", "pixel_shuffle"])
    def test_source_that_builds_without_syno(self, name: str, tmp_path: Path) -> None:
        file = tmp_path / "it.py"
        assert "equal to the interpreter at 2 sets of sizes" in FORMATS["te"].write(OPERATORS[name](), file, None)
        scope: dict[str, Any] = {}
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), scope)
        operator = OPERATORS[name]()
        values = {**dict.fromkeys(operator.variables, 64), **operator.variables.defaults}
        assert len(scope["placeholders"](**values)) == 1 + len(operator.weights)

    def test_wrong_source_is_not_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original = source.to_te_source
        wrong = lambda *given: original(*given).replace("i2 + r1", "i2")  # noqa: E731
        monkeypatch.setattr(source, "to_te_source", wrong)
        with pytest.raises(WrongOutputError, match="the tensor expressions of conv2d"):
            FORMATS["te"].write(OPERATORS["conv2d"](), tmp_path / "it.py", None)
        assert not list(tmp_path.iterdir())


def test_a_nan_is_a_difference() -> None:
    """In the second set of sizes alone, where a maximum would not show it."""
    rows = []

    def compute(values: Any, tensors: list[Any]) -> Any:
        rows.append(values)
        output = source.computed_by_module(operator, source.to_source(operator), values, tensors)
        return output if len(rows) == 1 else np.full_like(output, np.nan)

    operator = OPERATORS["conv2d"]()
    with pytest.raises(WrongOutputError, match="by inf of"):
        equal_to_meaning(operator, "it", compute)
    assert len(rows) == 2


def test_an_unknown_format_is_an_error_that_lists_them() -> None:
    with pytest.raises(UnknownNameError, match=r'"oonx".*"onnx"\?'):
        FORMATS["oonx"]


def test_the_command_names_the_file_after_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["get", "conv2d", "--to", "export", "--set", "C_in=4,C_out=6", "--set", "H=5"]
    result = CliRunner().invoke(app, given)
    assert (result.exit_code, result.stdout.partition(": equal")[0]) == (0, "conv2d.pt2"), result.output
    assert [file.name for file in tmp_path.iterdir()] == ["conv2d.pt2"]
    wrong = CliRunner().invoke(app, ["get", "conv2d", "--to", "onyx"])
    assert wrong.exit_code == 2 and wrong.stderr.startswith('error: unknown format of an operator "onyx"; there are: module, ')

"""Operators on the device compute what the NumPy interpreter computes, forward and backward."""

from __future__ import annotations

import unittest

import numpy as np
import torch
from on_gpu import OnGpu

import syno
from syno.ir.graph import PGraph
from syno.lower.interpreter import interpret, shapes
from syno.model import OperatorModule, build

PICTURES = {"N": 2, "C_in": 64, "C_out": 64, "C": 64, "H": 8}
SEQUENCES = {"N": 2, "seq_len": 16, "H_in": 48}
NAMES = ("conv2d", "operator_1", "operator_2", "stacked_convolution", "shift_rows_conv1x1", "pixel_shuffle", "gpt2_projection")
EXACT, LOW_PRECISION = 1e-10, 0.05  # relative errors: of float64, and of 16-bit numbers


def example(name: str) -> tuple[PGraph, dict[str, int], torch.Tensor]:
    """An operator, values of its variables, and an input in double precision, on the CPU."""
    graph = syno.OPERATORS[name]()
    given = SEQUENCES if "seq_len" in graph.variables else PICTURES
    values = dict(graph.valuation({key: value for key, value in given.items() if key in graph.variables}))
    generator = torch.Generator().manual_seed(0)
    shape = shapes(graph, graph.valuation(values))[0]
    return graph, values, torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a share of the largest number expected."""
    return float((found.detach().cpu().double() - expected).abs().max() / expected.abs().max())


class Operators(OnGpu):
    def test_both_forms_agree_with_the_interpreter(self) -> None:
        for name in NAMES:
            graph, values, x = example(name)
            for mode in ("literal", "fused"):
                with self.subTest(operator=name, mode=mode):
                    module = self.module(graph, values, mode)
                    weights = [weight.detach().cpu().numpy() for weight in module.parameters()]
                    expected = torch.from_numpy(np.asarray(interpret(graph, values, x.numpy(), *weights)))
                    self.assertLess(error(module(x.to(self.device)), expected), EXACT)

    def test_gradients_are_those_of_the_cpu(self) -> None:
        for name in NAMES:
            graph, values, x = example(name)
            with self.subTest(operator=name):
                found, expected = (self.gradients(graph, values, x, device) for device in (self.device, "cpu"))
                for one, other in zip(found, expected, strict=True):
                    self.assertLess(error(one, other), EXACT)

    def test_in_16_bits_by_autocast(self) -> None:
        for name in NAMES:
            graph, values, x = example(name)
            module = build(graph, values, seed=0, device=self.device)
            expected = module.double()(x.to(self.device)).detach().cpu()
            module.float()
            for dtype in (torch.bfloat16, torch.float16):
                with self.subTest(operator=name, dtype=dtype), torch.autocast(torch.device(self.device).type, dtype=dtype):
                    self.assertLess(error(module(x.float().to(self.device)), expected), LOW_PRECISION)

    def module(self, graph: PGraph, values: dict[str, int], mode: str) -> OperatorModule:
        return build(graph, values, mode=mode, seed=0, device=self.device, dtype=torch.float64)

    def gradients(self, graph: PGraph, values: dict[str, int], x: torch.Tensor, device: str) -> list[torch.Tensor]:
        module = build(graph, values, seed=0, device="cpu", dtype=torch.float64).to(device)  # the same weights on both
        given = x.to(device).requires_grad_()
        output = module(given)
        (output * torch.linspace(-1, 1, output.numel(), device=device, dtype=torch.float64).view_as(output)).sum().backward()
        return [tensor.grad.detach().cpu() for tensor in (given, *module.parameters()) if tensor.grad is not None]


if __name__ == "__main__":
    unittest.main()

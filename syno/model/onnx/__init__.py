"""ONNX files as PyTorch modules: `graph.py` reads a file, and `operators.py` translates each of its nodes."""

from syno.model.onnx.graph import network, read_onnx

__all__ = ["network", "read_onnx"]

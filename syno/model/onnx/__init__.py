"""ONNX files as PyTorch modules: `file.py` reads a file, `operators.py` translates nodes, `graph.py` has common classes."""

from syno.model.onnx.file import network, read_onnx

__all__ = ["network", "read_onnx"]

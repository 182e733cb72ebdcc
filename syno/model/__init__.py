"""Networks and operators in PyTorch: backbones, their layers, and operators as modules in place of layers."""

from syno.model.module import OperatorModule, build

__all__ = ["OperatorModule", "build"]

"""Operators as `nn.Module`s."""

from syno.model.module import OperatorModule, build

__all__ = ["OperatorModule", "build"]

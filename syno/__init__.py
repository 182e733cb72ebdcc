"""Syno: neural-network layer operators, synthesized."""

__version__ = "0.1.0"

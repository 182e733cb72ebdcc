"""Measurement of networks and operators: compilers, latency, tuning, devices, and the check of outputs."""

from __future__ import annotations

from collections.abc import Mapping

# The numbers that a publication gives the layers of a network, by the names of their sizes ("conv_io64"). A network is its
# model, its width, and height and width of the pictures. Extensions add to it.
NUMBERED_LAYERS: dict[tuple[str, float, tuple[int, ...]], Mapping[str, str]] = {}

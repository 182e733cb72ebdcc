"""A run, which is a folder of records: the table of its measurements, its views, and verdicts by its goal."""

from __future__ import annotations

from collections.abc import Mapping

# Of a folder of results: the folder of tables, their names, and the folder of the operator store. Importing them loads nothing.
FOLDER, MEASUREMENTS, SCORES, LATENCY, LOSSES = "tables", "measurements", "scores", "latency", "losses"
OPERATORS = "operators"
OF_LAYERS = "layers"
OF_GOAL = "goal"
OF_BREAKDOWN = "breakdown"
IMPORT_RECORD = "artifact.json"  # of an import of published data
# The numbers that a publication gives the layers of a network, by the names of their sizes ("conv_io64"). A network is its
# model, its width, and height and width of the pictures. Extensions add to it.
NUMBERED_LAYERS: dict[tuple[str, float, tuple[int, ...]], Mapping[str, str]] = {}

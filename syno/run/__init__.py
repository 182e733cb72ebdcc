"""A run, which is a folder of records: its table of measurements, views of this table, and verdicts by the goal."""

from __future__ import annotations

# Of a folder of results: the folder of tables, their names, and the folder of the operator store. Importing them loads nothing.
FOLDER, MEASUREMENTS, SCORES, LATENCY, LOSSES = "tables", "measurements", "scores", "latency", "losses"
OPERATORS = "operators"
OF_LAYERS = "layers"
OF_GOAL = "goal"
OF_BREAKDOWN = "breakdown"
IMPORT_RECORD = "artifact.json"  # of an import of published data

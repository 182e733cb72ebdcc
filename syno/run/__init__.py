"""A run, which is a folder of records: the table of its measurements, its views, and verdicts by its goal."""

# Of a folder of results: the folder of tables, their names, and the folder of the operator store. Importing them loads nothing.
FOLDER, MEASUREMENTS, SCORES, LATENCY, LOSSES = "tables", "measurements", "scores", "latency", "losses"
OPERATORS = "operators"
OF_LAYERS = "layers"
OF_GOAL = "goal"
OF_BREAKDOWN = "breakdown"
# Of an import of published data: its record, and its numbers.
IMPORT_RECORD, IMPORT_NUMBERS = "artifact.json", "measurements.json"
ABLATION = "ablation-"  # the beginning of the names of tables of ablations

"""The data that the paper's authors published: reading its measurements and operators, and the page of an import."""

# Files of an import in a folder of results: its record, and its numbers. Importing them loads nothing.
RECORD, NUMBERS = "artifact.json", "measurements.json"

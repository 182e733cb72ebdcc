"""The table of measurements: its schema, its file, its views, and statistics over its rows."""

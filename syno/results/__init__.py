"""The table of measurements: its columns, its file, and statistics over its rows."""

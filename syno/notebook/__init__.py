"""Syno from Python: studies of a user's own networks and functions, with plots, in a notebook or a script."""

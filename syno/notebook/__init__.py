"""Syno from Python: studies of a user's own networks and functions, and plots of them, in a notebook or a script."""

"""Evaluating operators: data sets, training on them, and how fast they run."""

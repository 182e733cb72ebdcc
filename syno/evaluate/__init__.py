"""Evaluating operators: data sets, and training on them."""

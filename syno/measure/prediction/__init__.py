"""Prediction of the speedup of a network by an operator, by a model that is fitted to measurements."""

"""Experiments on a space of operators: how many are canonical, what guidance by the distance is worth, samples."""

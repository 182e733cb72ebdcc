"""The shape distance: a lower bound on the primitives that a partial operator still needs."""

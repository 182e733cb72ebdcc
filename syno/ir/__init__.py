"""The operator language: primitives, dims, pGraphs, their text, loops and drawings."""

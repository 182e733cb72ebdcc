"""The operator language: primitives, dims, pGraphs, their text, loop nests and drawings."""

"""Measurement of networks and operators: compilers, latency, tuning, devices, and the check of outputs."""
